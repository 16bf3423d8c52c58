package cli

import (
	"strings"
	"text/template"
)

// The scripts walk over the words before the cursor to find the command, and skip the values of flags. Their data is
// in case statements, which every version of a shell has.

func shellScript(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"join":  strings.Join,
		"last":  func(path string) string { return path[strings.LastIndexByte(path, ' ')+1:] },
		"over":  func(path string) string { return path[:max(0, strings.LastIndexByte(path, ' '))] },
		"quote": func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" },
		"colon": func(text string) string { return strings.ReplaceAll(text, ":", `\:`) },
		"fish": func(text string) string {
			return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
		},
	}).Parse(text))
}

// bash splits words at = too, and hands them over one by one.
var bashScript = shellScript("bash", `# bash completion for natsid

_natsid() {
	local cmd="" i words="" flags="" cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]}
	for ((i = 1; i < COMP_CWORD; i++)); do
		case "$cmd:${COMP_WORDS[i]}" in
{{- range .Commands}}{{if .Path}}
		{{quote (print (over .Path) ":" (last .Path))}}) cmd={{quote .Path}} ;;{{end}}{{end}}
{{- range .Flags}}{{if .Value}}
		*:{{.Name}}) [[ ${COMP_WORDS[i+1]} == = ]] && ((i++)); ((i++)) ;;{{end}}{{end}}
		esac
	done
	[[ $cur == = ]] && cur=""
	[[ $flag == = ]] && flag=${COMP_WORDS[COMP_CWORD-2]}
	case $flag in
{{- range .Flags}}{{if .Value}}
	{{.Name}})
		{{- if .Words}} COMPREPLY=($(compgen -W '{{join .Words " "}}' -- "$cur")); return ;;
		{{- else if .File}} local IFS=$'\n'; compopt -o filenames 2>/dev/null
			COMPREPLY=($(compgen -f -- "$cur")); return ;;
		{{- else}} return ;;{{end}}{{end}}{{end}}
	esac
	case $cmd in
{{- range .Commands}}
	{{quote .Path}}) words='{{range .Words}} {{.Word}}{{end}}' flags='{{range .Flags}} {{.Name}}{{end}}' ;;
{{- end}}
	esac
	[[ $cur == -* ]] && words="$flags{{range .Common}} {{.Name}}{{end}}"
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -F _natsid natsid
`)

var zshScript = shellScript("zsh", `
{{- define "flag"}}{{quote (print .Name ":" (colon .Help))}}{{end -}}
#compdef natsid

_natsid() {
	local cmd="" i
	local -a words_ flags_
	for ((i = 2; i < CURRENT; i++)); do
		case "$cmd:${words[i]}" in
{{- range .Commands}}{{if .Path}}
		{{quote (print (over .Path) ":" (last .Path))}}) cmd={{quote .Path}} ;;{{end}}{{end}}
{{- range .Flags}}{{if .Value}}
		*:{{.Name}}) ((i++)) ;;{{end}}{{end}}
		esac
	done
	local flag=${words[CURRENT-1]}
	if [[ ${words[CURRENT]} == --*=* ]]; then
		flag=${words[CURRENT]%%=*}
		compset -P '*='
	fi
	case $flag in
{{- range .Flags}}{{if .Value}}
	{{.Name}})
		{{- if .Words}} compadd -- {{join .Words " "}}; return ;;
		{{- else if .File}} _files; return ;;
		{{- else}} return ;;{{end}}{{end}}{{end}}
	esac
	case $cmd in
{{- range .Commands}}
	{{quote .Path}})
		words_=({{range .Words}} {{quote (print (colon .Word) ":" (colon .Help))}}{{end}} )
		flags_=({{range .Flags}} {{template "flag" .}}{{end}} ) ;;
{{- end}}
	esac
	flags_+=({{range .Common}} {{template "flag" .}}{{end}} )
	if [[ ${words[CURRENT]} == -* ]]; then
		_describe -o option flags_
	else
		_describe command words_
	fi
}

if [[ ${funcstack[1]} == _natsid ]]; then
	_natsid "$@"
else
	compdef _natsid natsid
fi
`)

var fishScript = shellScript("fish", `
{{- define "flag"}}{{if eq (slice .Name 0 2) "--"}}-l {{slice .Name 2}}{{else}}-s {{slice .Name 1}}{{end}}
	{{- if .Words}} -x -a {{fish (join .Words " ")}}{{else if .File}} -r -F{{else if .Value}} -x{{end}}
	{{- " -d "}}{{fish .Help}}
{{- end -}}
# fish completion for natsid

function __natsid_at
	set -l cmd ''
	set -l skip 0
	for w in (commandline -opc)[2..]
		if test $skip = 1
			set skip 0
			continue
		end
		switch "$cmd:$w"
{{- range .Commands}}{{if .Path}}
			case {{fish (print (over .Path) ":" (last .Path))}}
				set cmd {{fish .Path}}{{end}}{{end}}
			case {{range .Flags}}{{if .Value}} {{fish (print "*:" .Name)}}{{end}}{{end}}
				set skip 1
		end
	end
	test "$cmd" = "$argv[1]"
end

complete -c natsid -f
{{- range .Common}}
complete -c natsid {{template "flag" .}}{{end}}
{{- range $c := .Commands}}{{range .Words}}
complete -c natsid -n {{fish (print "__natsid_at '" $c.Path "'")}} -a {{fish .Word}} -d {{fish .Help}}{{end}}
{{- range .Flags}}
complete -c natsid -n {{fish (print "__natsid_at '" $c.Path "'")}} {{template "flag" .}}
{{- end}}{{end}}
`)
