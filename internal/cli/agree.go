package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// consent has the flags of commands that destroy something or change several tags, and so ask first.
type consent struct {
	Yes    bool `short:"y"`
	DryRun bool
}

// change shows a plan on standard error, and calls do if the person at the terminal agrees. With --yes it neither
// shows nor asks. With --dry-run it prints the plan as the command's outcome, and does not call do.
func (o *output) change(c consent, question string, plan any, text func(*sheet), do func() error) error {
	if c.DryRun {
		return o.print(plan, text)
	}
	if !c.Yes {
		_, _ = o.stderr.Write(typeset(text).Bytes())
	}
	if err := o.agree(c.Yes, question); err != nil {
		return err
	}
	return do()
}

// agree asks a question, and returns an error unless the answer is yes. With yes, which --yes sets, it does not ask.
func (o *output) agree(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !isTerminal(os.Stdin):
		return usage(errors.New("there is no terminal to ask on; give --yes"))
	}
	fmt.Fprintf(o.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no answer means no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
