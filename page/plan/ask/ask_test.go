package ask

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/riffle-dp/riffle/account"
)

// A server keeps answers under the JSON text of their questions, and has that text answered. So nothing of a question
// may be left out of it: a change of any one field gives another text, which is read as that question again.
func TestTextsAreQuestions(t *testing.T) {
	zero := 0.0
	asDelta := Question{Query: account.DocumentQuery{Delta: &zero}}
	seen := map[string]string{}
	try := func(field string, q Question) {
		t.Helper()
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[string(text)]; ok {
			t.Errorf("%s and %s have one text", field, other)
		}
		seen[string(text)] = field
		if again, err := Parse(text); err != nil || !reflect.DeepEqual(again, q) {
			t.Errorf("%s: %s is read as %+v, %v", field, text, again, err)
		}
	}
	try("nothing", Question{})
	try("delta 0", asDelta)
	try("report {}", Question{Report: &Report{}})
	var walk func(name string, at func(*Question) reflect.Value)
	walk = func(name string, at func(*Question) reflect.Value) {
		kind := at(new(Question)).Type()
		if kind.Kind() == reflect.Struct {
			for i := range kind.NumField() {
				walk(name+"."+kind.Field(i).Name, func(q *Question) reflect.Value { return at(q).Field(i) })
			}
			return
		}
		var values []any
		switch kind.Kind() {
		case reflect.String:
			values = []any{"a", "b", "<&>\u2028\"\\"}
		case reflect.Bool:
			values = []any{true}
		case reflect.Int:
			values = []any{1, 2, -1 << 31}
		case reflect.Int64:
			values = []any{1, int64(1)<<53 + 1, int64(-1) << 63}
		case reflect.Float64:
			values = []any{1.0, 1.0000000000000002, 5e-324, -1.7976931348623157e308}
		case reflect.Slice:
			values = []any{[]float64{1}, []float64{0, 0}, []float64{1, 5e-324}}
		case reflect.Pointer:
			one, next := 1.0, 1.0000000000000002
			values = []any{&one, &next}
		default:
			t.Fatalf("%s is a %s", name, kind)
		}
		for _, v := range values {
			var q Question
			field := at(&q)
			field.Set(reflect.ValueOf(v).Convert(kind))
			try(name, q)
		}
	}
	for _, f := range []string{"Query", "Which"} {
		walk(f, func(q *Question) reflect.Value { return reflect.ValueOf(q).Elem().FieldByName(f) })
	}
	walk("Report", func(q *Question) reflect.Value {
		if q.Report == nil {
			q.Report = new(Report)
		}
		return reflect.ValueOf(q.Report).Elem()
	})
	if len(seen) < 80 {
		t.Errorf("%d questions", len(seen))
	}
}

// Text that says something twice, or more than a question, is no way to another question's key.
func TestNotOneQuestion(t *testing.T) {
	for _, text := range []string{`null{}`, `{"query":{}}null`, `{"query":{},"Query ":{}}`, `{"query":{"delta":"1e-5"}}`, `{"query":{"delta":NaN}}`, `{"query":{"eps":1e999}}`, `{"query":{"n":1.5}}`,
		`{"query":{"n":9223372036854775808}}`, `{"query":[]}`, `{"query":""}`, `{"report":[]}`, `{"which":1}`} {
		if q, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s is %+v", text, q)
		}
	}
	// The last of two counts, for the key as for the answer.
	q, err := Parse([]byte(`{"query":{"n":1,"N":2},"query":{"n":3,"eps":1,"eps":2},"which":"all","WHICH":"best"}`))
	if err != nil || q.Query.N != 3 || *q.Query.Eps != 2 || q.Which != "best" {
		t.Errorf("%+v, %v", q, err)
	}
}
