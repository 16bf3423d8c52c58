package vectors

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func tagCases() (cases []Tag) {
	for _, c := range [][3]string{
		{"a word", "the usual tag", "order"},
		{"all kinds of bytes", "each is allowed", "Shop-1_a/b=c.d"},
		{"one byte", "the shortest tag", "o"},
		{"128 bytes", "the longest tag", strings.Repeat("o", subjects.MaxTag)},
		{"129 bytes", "it does not fit Leaf's column", strings.Repeat("o", subjects.MaxTag+1)},
		{"empty", "the subject would end with a dot", ""},
		{"a dot at the start", "NATS has no empty tokens", ".order"},
		{"a dot at the end", "NATS has no empty tokens", "order."},
		{"two dots", "NATS has no empty tokens", "shop..order"},
		{"a space", "it would end the subject, and the rest become the reply subject", "order _INBOX.x"},
		{"a line break", "it would end the line, and the rest become another command", "order\r\nPUB other 0"},
		{"a tab", "it ends a subject, too", "order\tx"},
		{"a wildcard", "a request is for one tag", "order.*"},
		{"the full wildcard", "a request is for one tag", "order.>"},
		{"a letter beyond ASCII", "other spellings would look the same", "bestellüng"},
		{"a zero byte", "it ends a text in C", "order\x00"},
		{"natsid's own key", "the bucket of the marks has keys of natsid's", "_natsid"},
		{"below natsid's own key", "the bucket of the marks has keys of natsid's", "_natsid.registry"},
		{"like natsid's own key", "only the whole token is natsid's", "_natsidx"},
	} {
		cases = append(cases, Tag{Case: Case{c[0], c[1]}, Tag: c[2]})
	}
	return cases
}

func countCases() (cases []Count) {
	for _, c := range [][3]string{
		{"one", "the body is empty: the shortest request", "1"},
		{"two", "a decimal", "2"},
		{"the limit", "the most that workers give unless configured otherwise", "100000"},
		{"beyond the limit", "the limit is the worker's to say: it may have another", "100001"},
		{"zero", "no reply has no ID", "0"},
		{"negative", "no reply has fewer than one ID", "-1"},
		{"beyond a call", "a count that was mistyped uses up no more than a call may have", "10000001"},
		{"a fraction", "it is no count", "1.5"},
		{"a text", "a worker reads decimals only", `"1e3"`},
	} {
		cases = append(cases, Count{Case: Case{c[0], c[1]}, N: json.RawMessage(c[2])})
	}
	return cases
}

// most is the highest ID.
const most = math.MaxInt64

func replyCases() []Reply {
	top := strconv.FormatInt(most, 10)
	reply := func(name, why string, n int, body string) Reply {
		return Reply{Case: Case{name, why}, N: n, Body: body}
	}
	return []Reply{
		reply("one ID", "a run of one has no hyphen", 1, "1001"),
		reply("a run", "first and last belong to it", 100, "1001-1100"),
		reply("several runs", "a reply may be from several ranges, not always rising", 6, "2001-2003\n1001\n1005-1006"),
		reply("above 2^53", "a double rounds it", 2, "9007199254740993\n9007199254740995"),
		reply("the highest ID", "2^63-1", 1, top),
		reply("a run up to the highest ID", "a count of its IDs must not overflow", 2,
			strconv.FormatInt(most-1, 10)+"-"+top),
		reply("ID 1", "the lowest", 1, "1"),
		reply("many runs", "300 lines, each of one ID", 300, scattered(300)),

		reply("empty", "BigInt(\"\") is 0n", 1, ""),
		reply("ID 0", "IDs begin at 1", 1, "0"),
		reply("a run from 0", "IDs begin at 1", 2, "0-1"),
		reply("negative", "IDs have no sign", 1, "-5"),
		reply("a plus", "IDs have no sign", 1, "+5"),
		reply("above 2^63", "it is no signed 64-bit number", 1, "9223372036854775808"),
		reply("above 2^64", "it must not wrap around", 1, "18446744073709551617"),
		reply("a run that ends above 2^63", "both ends are IDs", 1, "9223372036854775807-9223372036854775808"),
		reply("a run of all numbers", "its length overflows", 1, "0-"+top),
		reply("a leading zero", "an ID has one spelling", 1, "01"),
		reply("hexadecimal", "an ID is a decimal", 1, "0x10"),
		reply("an exponent", "an ID is a decimal", 1, "1e3"),
		reply("a fraction", "an ID is a decimal", 1, "1.0"),
		reply("a space", "no spaces", 1, " 1"),
		reply("a newline at the end", "natsid writes none", 1, "1\n"),
		reply("CR LF", "natsid writes none", 2, "1\r\n2"),
		reply("digits of another script", "only ASCII", 1, "١"),
		reply("a run that falls", "first is below last", 2, "6-5"),
		reply("a run of one with a hyphen", "natsid writes 5", 1, "5-5"),
		reply("two hyphens", "a run has two ends", 3, "1-2-3"),
		reply("an open run", "a run has two ends", 2, "1-"),
		reply("overlapping runs", "an ID would be given twice", 10, "1-6\n5-8"),
		reply("a run twice", "an ID would be given twice", 10, "1-5\n1-5"),
		reply("an ID twice, apart", "runs are compared with all others", 3, "7\n1\n7"),
		reply("too few IDs", "half an answer", 10, "1-9"),
		reply("too many IDs", "whose are they?", 10, "1-11"),
		reply("an acknowledgement of JetStream", "a stream on the same subject answers, too", 1,
			`{"stream":"ORDERS","seq":7}`),
		reply("a word", "another program answers", 1, "+OK"),
		{Case: Case{"10 MB", "it is refused by its length"}, N: 5, Body: "1234567\n", Times: 10 << 20 / 8},
		{Case: Case{"a digit for 10 MB", "it is refused by its length"}, N: 1, Body: "9", Times: 10 << 20},
	}
}

// scattered returns a reply with n IDs, no two of which are consecutive.
func scattered(n int) string {
	var body []byte
	for i := range subjects.ID(n) {
		body = subjects.AppendRun(body, 2*i+1, 2*i+1)
	}
	return string(body)
}

func failureCases() []Failure {
	failure := func(name, why, body string, headers ...string) Failure {
		f := Failure{Case: Case{name, why}, Headers: map[string]string{}, Body: body}
		for i := 0; i < len(headers); i += 2 {
			f.Headers[headers[i]] = headers[i+1]
		}
		return f
	}
	const code, text = subjects.HeaderErrorCode, subjects.HeaderError
	return []Failure{
		failure("400", "to ask again cannot help", "", code, "400", text, "the count is \"x\""),
		failure("400 with a limit", "more than a worker gives at once", "", code, "400", text, "too many",
			subjects.HeaderMaxBatch, "100"),
		failure("404", "to ask again cannot help", "", code, "404", text, "there is no tag order"),
		failure("410", "to ask again cannot help until an operator or the next period does", "", code, "410",
			text, "no number is left"),
		failure("429", "the limit lets requests pass later", "", code, "429", text, "too many requests wait"),
		failure("429 with a wait", "for one handle, no other waits", "", code, "429", text, "the rate is used up",
			subjects.HeaderRetryAfter, "2000"),
		failure("429 with a wait that is no decimal", "it counts as absent", "", code, "429", text, "too many",
			subjects.HeaderRetryAfter, "soon"),
		failure("500", "a bug, which the next worker has as well", "", code, "500", text, "a bug in natsid"),
		failure("503", "another worker may serve", "", code, "503", text, "JetStream is away"),
		failure("a code from the future", "unknown codes end the call", "", code, "418", text, "new"),
		failure("a code that is no number", "it is an error nevertheless", "", code, "oops", text, "broken"),
		failure("a code without a text", "the code decides", "", code, "404"),
		failure("a code beside a body", "an error holds no ID, whatever the body is", "1001",
			code, "503", text, "away"),
		failure("a text without a code", "only the code makes an error", "1001", text, "a note"),
		failure("headers of others", "a tracer's, for example", "1001",
			"traceparent", "00-0af7651916cd43dd-b7ad6b7169203331-01"),
	}
}

func ageCases() []Age {
	age := func(name, why string, n int, ms int64) Age {
		return Age{Case: Case{name, why}, N: n, MaxAgeMs: ms}
	}
	return []Age{
		age("a second", "the usual age", 1000, 1000),
		age("50 ms", "units below a second", 1, 50),
		age("a minute and a half", "units are mixed", 10, 90_000),
		age("an hour", "the longest", 10, 3_600_000),
		age("above an hour", "raised tags take effect after an hour everywhere", 10, 3_600_001),
		age("a day", "far above", 10, 86_400_000),
		age("negative", "it is no age", 10, -1),
		age("fewer than none", "a range has at least one ID", -5, 1000),
	}
}

func layoutCases() []Layout {
	at := func(l snowflake.Layout, tick, worker, business, sequence int64) string {
		id := ((tick<<(l.Site+l.Worker)|worker)<<l.Business|business)<<l.Sequence | sequence
		return strconv.FormatInt(id, 10)
	}
	entry := func(name, why, layout, id string) Layout {
		return Layout{Case: Case{name, why}, Layout: layout, ID: id}
	}
	wide := snowflake.Layout{Time: 35, Worker: 10, Sequence: 12, Epoch: snowflake.LeafEpoch, Unit: 10}
	return []Layout{
		entry("leaf", "the default layout", "leaf", "2124263042718941184"),
		entry("leaf, the lowest", "tick 0 is the epoch", "leaf", "0"),
		entry("leaf, the highest", "2^63-1", "leaf", strconv.FormatInt(most, 10)),
		entry("leaf by its widths", "the same as leaf", "41+10+12", at(snowflake.Leaf, 1<<40, 1023, 0, 4095)),
		entry("js53", "below 2^53", "js53", at(snowflake.JS53, 1<<40, 63, 0, 63)),
		entry("article", "sites and businesses, another epoch", "article",
			at(snowflake.Article, 1<<38, 0b11_0000001, 15, 127)),
		entry("ticks of 10 ms", "times are multiples of the tick", "35+10+12@10ms", at(wide, 123_456_789, 5, 0, 6)),
		entry("ticks of 1 s", "units are those of Go", "32+10+12@1s", "123456789012345"),
		entry("above js53", "bits above the time are zero", "js53", "9007199254740992"),
		entry("negative", "IDs have no sign", "leaf", "-1"),
		entry("above 2^63", "it is no signed 64-bit number", "leaf", "9223372036854775808"),
		entry("no decimal", "an ID has one spelling", "leaf", "0x10"),
		entry("an unknown layout", "a typing error", "leaves", "1"),
		entry("too many bits", "an ID has 63", "44+10+12", "1"),
		entry("no bits for the sequence", "each field needs one", "51+12+0", "1"),
		entry("a tick of no whole ms", "times are in ms", "41+10+12@1us", "1"),
	}
}

// Keys of masks.
var (
	keys1 = map[string]string{"k1": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}
	keys2 = map[string]string{"k1": "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f",
		"k2": "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"}
	short = map[string]string{"k1": "000102030405060708090a0b0c0d0e0f"}
)

func formatCases() []Text {
	const daily = "SO-{date:yyyyMMdd}-{id:6}-{check}"
	text := func(do, name, why, format, input string) Text {
		t := Text{Case: Case{do + " " + name, why}, Do: do, Format: format}
		if do == "read" {
			t.Text = input
		} else {
			t.ID = input
		}
		return t
	}
	flake := func(layout string, t Text) Text { t.Layout = layout; return t }
	lenient := func(t Text) Text { t.Lenient = true; return t }
	of := func(tag string, keys map[string]string, t Text) Text { t.Tag, t.Keys = tag, keys; return t }
	const masked = "SO-{date:yyyyMMdd}-{mask:k1:8}-{check}"
	all := []Text{
		text("parse", "an order's format", "a daily tag", daily, ""),
		text("parse", "a month", "the finest field says the period", "{id}/{date:MM.yy}", ""),
		text("parse", "a year", "a width that grows is no bound", "{date:yyyy}-{id:6}", ""),
		text("parse", "a width beside a digit", "growth would read as another date", "{date:yyyyMMdd}{id:6}", ""),
		text("parse", "a width beside the check digit", "it is a digit, too", "{id:6}{check}", ""),
		text("parse", "a letter beside decimals", "it is no digit", "SO{id}", ""),
		text("parse", "a letter beside radix 36", "it is a digit", "SO{id:4:36}", ""),
		text("parse", "a letter beside base32", "o may be read as 0", "o{id:3:crockford}", ""),
		flake("js53", text("parse", "a snowflake", "its bits are the bound", "{id}", "")),
		text("parse", "no number", "a text would have no ID", "SO-{check}", ""),
		text("parse", "nothing", "a text would have no ID", "", ""),
		text("parse", "two numbers", "which digits are whose?", "{id}{id:3}", ""),
		text("parse", "a number beside a digit", "which digits are whose?", "7{id}", ""),
		text("parse", "a number beside the check digit", "which digits are whose?", "{id}{check}", ""),
		text("parse", "an open brace", "it may be a mistake", "SO-{id", ""),
		text("parse", "a closing brace", "it may be a mistake", "SO-}{id}", ""),
		text("parse", "an unknown part", "it is for a later version", "{id}{word}", ""),
		text("parse", "a width of 0", "a number has a digit", "{id:0}", ""),
		text("parse", "a width of 20", "no number has so many digits", "{id:20}", ""),
		text("parse", "radix 63", "there are no digits for it", "{id::63}", ""),
		text("parse", "a letter beyond ASCII", "different letters look alike", "\u041e-{id}", ""),
		text("parse", "a line break", "it is no text of one line", "\n{id}", ""),
		text("parse", "a space at the start", "it is lost easily", " {id}", ""),
		text("parse", "129 bytes", "formats are short", strings.Repeat("x", 125)+"{id}", ""),
		text("parse", "a check digit first", "it checks what is before it", "{check}-{id}", ""),
		text("parse", "a part behind the check digit", "it checks what is before it", "{id}-{check}-{date:yyyy}", ""),
		text("parse", "a check digit of radix 16", "Damm's has an order of 10 or 32", "{id::16}-{check}", ""),
		text("parse", "a month without a year", "two dates would read alike", "{date:MM}-{id}", ""),
		text("parse", "a day without a month", "two dates would read alike", "{date:yyyy dd}-{id}", ""),
		text("parse", "hours of a tag", "tags have none", "{date:yyyyMMddHH}-{id}", ""),
		text("parse", "a year twice", "they could differ", "{date:yyyy}-{date:yy}-{id}", ""),
		text("parse", "a date without a pattern", "there is no usual one", "{date}-{id}", ""),
		text("parse", "an unknown field", "yyy is yy and y", "{date:yyy}-{id}", ""),
		text("parse", "a business of a tag", "tags have none", "{business}-{id}", ""),
		flake("leaf", text("parse", "a business without bits", "the layout has none", "{business}-{id}", "")),
		flake("article", text("parse", "a short snowflake", "no snowflake would fit", "{business}{id:3}", "")),
		of("so", keys1, text("parse", "a mask", "the width is the bound", "SO-{mask:k1:9}", "")),
		of("so", keys1, text("parse", "a mask of each day", "all numbers of a day are masked", masked, "")),
		of("so", keys1, text("parse", "a mask of most numbers", "both halves fit in 64 bits", "{mask:k1:18}", "")),
		of("so", keys1, text("parse", "a mask of more", "FF1's halves would not fit", "{mask:k1:19}", "")),
		of("so", keys1, text("parse", "a mask of few numbers", "NIST wants a million at least", "{mask:k1:5}", "")),
		of("so", keys1, text("parse", "a mask of more than a day", "a day has 10^8 numbers",
			"{date:yyyyMMdd}{mask:k1:9}", "")),
		of("so", keys1, text("parse", "a mask in another radix", "masks are decimals", "{mask:k1:9:36}", "")),
		text("parse", "a mask without a width", "all numbers of the width are masked", "{mask:k1}", ""),
		text("parse", "a mask without a name", "the key has a name", "{mask::9}", ""),
		text("parse", "a key in upper case", "names have one case", "{mask:K1:9}", ""),
		text("parse", "a mask without its key", "only whoever has the key reads and writes texts", "{mask:k1:9}", ""),
		of("so", keys1, text("parse", "a mask with another key", "the key has a name", "{mask:k2:9}", "")),
		of("so", short, text("parse", "a short key", "a key has 32 bytes", "{mask:k1:9}", "")),
		of("", keys1, text("parse", "a mask without a tag", "each tag has a mask of its own", "{mask:k1:9}", "")),
		of("so", keys1, text("parse", "a mask and a number", "which digits are whose?", "{mask:k1:9}-{id}", "")),
		of("so", keys1, flake("leaf", text("parse", "a mask of snowflakes", "they show their time anyway",
			"{mask:k1:18}", ""))),

		text("write", "an order", "the usual format", daily, "2026112500000042"),
		text("write", "a number wider than its width", "the width is the least", "SO-{id:6}", "1000000"),
		text("write", "braces", "they are doubled in the format", "{{{id}}}", "7"),
		text("write", "the highest ID", "2^63-1", "{id}", strconv.FormatInt(most, 10)),
		text("write", "ID 0", "a snowflake may be 0", "{id:2}", "0"),
		text("write", "radix 2", "63 digits", "{id::2}", strconv.FormatInt(most, 10)),
		text("write", "radix 36", "upper case", "{id::36}", strconv.FormatInt(most, 10)),
		text("write", "radix 62", "lower case follows", "{id::62}", strconv.FormatInt(most, 10)),
		text("write", "base32", "no I, L, O and U", "{id:8:crockford}-{check}", "1099511627775"),
		text("write", "the example of the check digit", "5724 is Damm's own", "{id:3}{check}", "572"),
		text("write", "a leap day", "it exists", "{date:dd.MM.yyyy} {id}", "2024022900000001"),
		text("write", "29 February 2100", "it does not exist", "{date:yyyyMMdd}-{id}", "2100022900000001"),
		text("write", "the last year of two digits", "they are of 2000 to 2099", "{date:yy}-{id}", "2099000000000001"),
		flake("leaf", text("write", "the time of a snowflake", "it is in UTC",
			"{date:yyyy-MM-dd HH:mm:ss.SSS} {id:13:crockford}{check}", "2124263042718941184")),
		flake("article", text("write", "the business of a snowflake", "it has as many digits as the highest",
			"{business}-{id}", "17592186045059")),
		flake("61+1+1", text("write", "a year of eight digits", "it has no four, and no Date of JavaScript",
			"{date:yyyy} {id}", strconv.FormatInt(most, 10))),
		flake("61+1+1", text("write", "a day of such a year", "its fields are those of any other",
			"{date:MM-dd HH:mm:ss.SSS} {id}", strconv.FormatInt(most, 10))),
		text("write", "a negative number", "IDs have no sign", "{id}", "-1"),
		text("write", "above the bound", "the text would read as another", "{date:yyyyMMdd}{id:6}", "2026112501000000"),
		text("write", "no day", "the ID is of another tag", daily, "42"),
		text("write", "30 February", "it does not exist", daily, "2026023000000001"),
		text("write", "a month 13", "it does not exist", "{date:yyyyMM}-{id}", "2026130000000001"),
		text("write", "the year 9007", "IDs would exceed 2^53", "{date:yyyy}-{id}", "9007000000000001"),
		text("write", "the year 2100", "it has no two digits", "{date:yy}-{id}", "2100000000000001"),
		flake("js53", text("write", "no snowflake of the layout", "bits above the time are zero", "{id}",
			"9007199254740992")),
		of("so", keys1, text("write", "a masked number", "the text has all digits", "SO-{mask:k1:9}", "42")),
		of("so", keys1, text("write", "the next masked number", "neighbours are far apart", "SO-{mask:k1:9}", "43")),
		of("to", keys1, text("write", "a masked number of another tag", "the tag is its tweak", "{mask:k1:9}", "42")),
		of("so", keys2, text("write", "a masked number by another key", "it is a secret", "SO-{mask:k1:9}", "42")),
		of("so", keys2, text("write", "a masked number by one of two keys", "the format names it", "SO-{mask:k2:9}",
			"42")),
		of("so", keys1, text("write", "the highest masked number", "it is a bijection", "{mask:k1:9}{check}",
			"999999999")),
		of("so", keys1, text("write", "a masked number of a day", "the check digit is that of the text", masked,
			"2026112500000042")),
		of("so", keys1, text("write", "the same of the next day", "each day has a mask of its own", masked,
			"2026112600000042")),
		of("so", keys1, text("write", "a masked number of a month", "the date is of six digits",
			"{mask:k1:10}/{date:MM.yy}", "2026110000000042")),
		of("so", keys1, text("write", "a masked number of a year", "the date is of four digits",
			"{date:yyyy}-{mask:k1:12}", "2026000000000042")),
		of(strings.Repeat("x", 128), keys1, text("write", "a masked number of a long tag",
			"its tweak has several blocks", "{mask:k1:7}", "42")),
		of("so", keys1, text("write", "above the mask", "it has no text", "{mask:k1:9}", "1000000000")),

		text("read", "an order", "the usual format", daily, "SO-20261125-000042-4"),
		text("read", "another tag's text", "it begins otherwise", daily, "RE-20261125-000042-4"),
		text("read", "lower case", "literal text has one case", daily, "so-20261125-000042-4"),
		text("read", "nothing", "it is no text", daily, ""),
		text("read", "a wrong check digit", "a digit is mistyped", daily, "SO-20261125-000042-7"),
		text("read", "two digits swapped", "the check digit finds it", daily, "SO-20261125-000024-4"),
		text("read", "30 February", "it does not exist", daily, "SO-20260230-000042-4"),
		text("read", "a short number", "a number has one text", daily, "SO-20261125-00042-4"),
		text("read", "a long number", "a number has one text", daily, "SO-20261125-0000042-4"),
		text("read", "a number above a day's", "it would be of the next day", daily, "SO-20261125-100000000-4"),
		text("read", "a letter among digits", "it is none", daily, "SO-20261125-00O042-4"),
		text("read", "half a date", "a field has all digits", daily, "SO-202611"),
		text("read", "a space behind it", "nothing follows a text", daily, "SO-20261125-000042-4 "),
		text("read", "a letter beyond ASCII", "bytes are counted, not letters", "{id} \"x\"", "42 \u041e"),
		text("read", "above 2^63", "it is no signed 64-bit number", "{id}", "9223372036854775808"),
		text("read", "base32", "strictly, it has no o", "{id::crockford}", "1o"),
		lenient(text("read", "base32 as typed", "o is 0, i and l are 1", "{id:4:crockford}-{check}", "oziL-5")),
		lenient(text("read", "base32 with a u", "u is no mistake for v", "{id::crockford}", "1u")),
		flake("leaf", text("read", "another day than the snowflake's", "both say it", "{date:yyyyMMdd} {id}",
			"20261122 2124263042718941184")),
		flake("article", text("read", "another business than the snowflake's", "both say it", "{business}-{id}",
			"06-17592186045059")),
		of("so", keys1, text("read", "a masked number", "whoever has the key reads it", "{mask:k1:9}", "123456789")),
		of("so", keys1, text("read", "a short masked number", "it has all digits", "SO-{mask:k1:9}", "SO-12345678")),
		of("so", keys1, text("read", "a masked number of a day", "its mask is of that day", masked,
			"SO-20261125-97663806-1")),
	}
	for width := 6; width <= 18; width++ {
		all = append(all, of("so", keys1, text("write", fmt.Sprintf("a mask of %d digits", width),
			fmt.Sprintf("its halves have %d and %d", width/2, width-width/2),
			fmt.Sprintf("{mask:k1:%d}", width), "42")))
	}
	return all
}
