package format_test

import (
	"bytes"
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
	fmt.Println(text)

	id, err := order.Read(text)
	fmt.Println(id, err)

	_, err = order.Read("SO-20261125-000024-4")
	fmt.Println(err)
	// Output:
	// SO-20261125-000042-4
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
	k1 := bytes.Repeat([]byte{1}, 32) // keep a random one, such as of `openssl rand 32`
	f, err := format.Parse("SO-{mask:k1:9}", format.Keys("so", map[string][]byte{"k1": k1}))
	if err != nil {
		log.Fatal(err)
	}
	text, err := f.Format(42)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	fmt.Println(f.Read(text))
	// Output:
	// SO-261358132
	// 42 <nil>
}
