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

func ExampleKeys() {
	key, err := format.NewKey("k1") // write it to a file, once: see Key.WriteFile and ReadKeyFile
	if err != nil {
		log.Fatal(err)
	}
	f, err := format.Parse("SO-{mask:k1:9}", format.Keys(key))
	if err != nil {
		log.Fatal(err)
	}
	text, err := f.Format(42)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(text))
	fmt.Println(f.Read(text))
	// Output:
	// 12
	// 42 <nil>
}
