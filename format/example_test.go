package format_test

import (
	"fmt"
	"log"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/snowflake"
)

func ExampleParse() {
	order, err := format.Parse("SO-{date:yyyyMMdd}-{id:6}-{check}")
	if err != nil {
		log.Fatal(err)
	}
	text, err := order.Format(20261125_00000042)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text, order.Period())

	id, err := order.Read(text)
	fmt.Println(id, err)

	_, err = order.Read("SO-20261125-000024-4")
	fmt.Println(err)
	// Output:
	// SO-20261125-000042-4 daily
	// 2026112500000042 <nil>
	// format: byte 19 of the text: wrong check digit: it is not that of the other digits
}

func ExampleSnowflakes() {
	f, err := format.Parse("{date:yyyy-MM-dd HH:mm:ss.SSS} {id::crockford}", format.Snowflakes(snowflake.Leaf))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Format(2124263042718941184))
	// Output: 2026-11-21 22:05:50.940 1TYQ5ZE3C1G00 <nil>
}

func ExampleDiffer() {
	old, _ := format.Parse("SO-{id:6}")
	changed, _ := format.Parse("SO-{id:6}{check}")
	id, differs := format.Differ(old, changed)
	text, _ := old.Format(id)
	now, _ := changed.Read(text)
	fmt.Println(differs, text, now)
	// Output: true SO-6342933 634293
}
