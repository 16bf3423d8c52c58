package leafhttp

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// millis is Leaf's format of times, in the time zone of its process.
const millis = "2006-01-02 15:04:05.000"

// decode answers with the parts of a snowflake, all as strings.
func (s *Server) decode(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query()["snowflakeId"]
	if given == nil {
		fault{
			status: http.StatusBadRequest, exception: missingException,
			message: "Required String parameter 'snowflakeId' is not present",
		}.write(w, r)
		return
	}
	writeJSON(w, http.StatusOK, s.parts(given[0]))
}

func (s *Server) parts(text string) map[string]string {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return map[string]string{"errorMsg": fmt.Sprintf("%+.40q is no snowflake: want a decimal number", text)}
	}
	p, err := s.cfg.Layout.Decode(id)
	if err != nil {
		return map[string]string{"errorMsg": err.Error()}
	}
	return map[string]string{
		"timestamp":  fmt.Sprintf("%d(%s)", p.Time.UnixMilli(), p.Time.In(time.Local).Format(millis)),
		"workerId":   strconv.Itoa(p.Worker),
		"sequenceId": strconv.FormatInt(p.Sequence, 10),
	}
}
