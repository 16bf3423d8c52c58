package format

import "time"

// A Period is how long a tag counts before it begins again. The IDs of a daily tag are yyyyMMdd*10^8 + n, those of a
// monthly one yyyyMM*10^10 + n, and those of a yearly one yyyy*10^12 + n: below 2^53 up to the year 9006.
type Period int

// The periods of tags; None is that of tags that never begin again.
const (
	None Period = iota
	Day
	Month
	Year
)

const lastYear = 9006

// Size returns how many numbers a period has; 0 for None.
func (p Period) Size() int64 { return [...]int64{0, 1e8, 1e10, 1e12}[p] }

// String returns daily, monthly or yearly, or "" for None.
func (p Period) String() string { return [...]string{"", "daily", "monthly", "yearly"}[p] }

// Join returns the lowest ID of the period that contains t, in t's own location; 0 for None.
func (p Period) Join(t time.Time) int64 {
	var v values
	v.setTime(t) //mutant:join
	return p.join(v)
}

// finest returns the finest field of the period's dates, number for None.
func (p Period) finest() int { return number - int(p) }

// join returns the ID of a date and a number.
func (p Period) join(v values) int64 {
	if p == None {
		return v[number]
	}
	date := v[year]*1e4 + v[month]*100 + v[day]
	return date*1e8/p.Size()*p.Size() + v[number]
}

// start returns when the period of an ID begins.
func (p Period) start(id int64) time.Time {
	date := id/p.Size()*p.Size()/1e8 + [...]int64{0, 0, 1, 101}[p]
	return time.Date(int(date/1e4), time.Month(date/100%100), int(date%100), 0, 0, 0, 0, time.UTC)
}
