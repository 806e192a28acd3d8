package plan

import (
	"bufio"
	"context"
	"encoding/json"
	"io"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/page/plan/ask"
)

// stepBegins is how a line begins that is no answer yet.
var stepBegins = []byte(`{"step":`)

// maxMemory bounds the memory that a process for questions writes to, in bytes; the system then ends it.
const maxMemory = 1 << 30

// Accountant answers a page's questions, a line each, until in ends. It is all that its process does. On
// Linux and macOS it bounds the process's memory, and lowers its priority where it may.
func Accountant(in io.Reader, out io.Writer) error {
	modest()
	a := new(account.Accountant)
	questions := bufio.NewScanner(in)
	questions.Buffer(nil, maxAnswer)
	for questions.Scan() {
		q, err := ask.Parse(questions.Bytes())
		if err != nil {
			return err
		}
		answer := q.Answer(context.Background(), a, func(method string, done, of int) {
			type step struct {
				Method string `json:"method"`
				Done   int    `json:"done"`
				Of     int    `json:"of"`
			}
			line, _ := json.Marshal(map[string]step{"step": {method, done, of}})
			_, _ = out.Write(append(line, '\n')) // the answer fails, too
		})
		if _, err := out.Write(append(answer, '\n')); err != nil {
			return err
		}
	}
	return questions.Err()
}
