package draw

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/learn/dataset/mnist"
	"github.com/riffle-dp/riffle/learn/feature"
	"github.com/riffle-dp/riffle/learn/model"
)

// visit is a demonstration that has room for one tab.
type visit struct{ lines []string }

func (v *visit) Demo() any    { return map[string]any{"clients": 7, "services": []string{}} }
func (v *visit) Ready(string) {}
func (v *visit) Ended()       {}
func (v *visit) Enrol(line string) error {
	if len(v.lines) == 1 {
		return errors.New("all are taken")
	}
	v.lines = append(v.lines, line)
	return nil
}

// A page of another host or origin gets nothing and changes nothing.
func TestOnlyThisPage(t *testing.T) {
	const origin = "http://127.0.0.1:1234"
	v := &visit{}
	h := Handler(origin, fstest.MapFS{"index.js": {Data: []byte("x")}}, v)
	for _, c := range []struct {
		method, path, host, origin, kind string
		want                             int
	}{
		{"GET", "/", "127.0.0.1:1234", "", "", 200},
		{"GET", "/demo.json", "127.0.0.1:1234", "", "", 200},
		{"GET", "/client/index.js", "127.0.0.1:1234", "", "", 200},
		{"GET", "/client/none.js", "127.0.0.1:1234", "", "", 404},
		{"GET", "/", "evil.example", "", "", 403},
		{"GET", "/demo.json", "evil.example:1234", "", "", 403},
		{"GET", "/demo.json", "localhost:1234", "", "", 403}, // its storage would be another
		{"GET", "/client/index.js", "evil.example", "", "", 403},
		{"POST", "/enrol", "127.0.0.1:1234", "https://evil.example", "application/json", 403},
		{"POST", "/enrol", "127.0.0.1:1234", "http://127.0.0.1:12345", "application/json", 403},
		{"POST", "/enrol", "127.0.0.1:1234", "null", "application/json", 403},
		{"POST", "/enrol", "127.0.0.1:1234", "", "application/json", 403},
		{"POST", "/enrol", "127.0.0.1:1234", origin, "text/plain", 403},
		{"POST", "/enrol", "evil.example", "http://evil.example", "application/json", 403},
		{"GET", "/enrol", "127.0.0.1:1234", "", "", 404},
		{"GET", "/demo.json", "127.0.0.1:1234", "https://evil.example", "", 403},
		{"GET", "/client/index.js", "127.0.0.1:1234", "http://127.0.0.1:9", "", 403},
		{"POST", "/enrol", "127.0.0.1:1234", origin, "application/json", 204},
		{"POST", "/enrol", "127.0.0.1:1234", origin, "application/json", 409},
	} {
		if c.want == http.StatusNoContent && len(v.lines) != 0 {
			t.Errorf("enrolled: %q", v.lines)
		}
		r := httptest.NewRequest(c.method, origin+c.path, strings.NewReader(`{"line":"one"}`))
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%+v: %d %s, %v", c, w.Code, w.Body, w.Header())
		}
	}
	r := httptest.NewRequest("POST", origin+"/enrol", strings.NewReader(`{"line":"`+strings.Repeat("x", maxBody)+`"}`))
	r.Host = "127.0.0.1:1234"
	r.Header.Set("Origin", origin)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusConflict {
		t.Errorf("a long line: %d", w.Code)
	}
}

// The page's features and gradients are those of the model.
func TestGradientIsTheModels(t *testing.T) {
	b := browsertest.Open(t)
	s := httptest.NewUnstartedServer(nil)
	origin := "http://" + s.Listener.Addr().String()
	s.Config.Handler = Handler(origin, fstest.MapFS{"index.js": {Data: []byte("export const join = 0, newCredential = 0, publicLine = async () => null")}}, &visit{})
	s.Start()
	defer s.Close()
	images, _, err := mnist.Load()
	if err != nil {
		t.Fatal(err)
	}
	hog, err := feature.NewHOG(feature.DefaultHOG(28, 28))
	if err != nil {
		t.Fatal(err)
	}
	var some []int
	for i := range 40 {
		some = append(some, i*7)
	}
	if images, err = images.Subset(some); err != nil {
		t.Fatal(err)
	}
	const classes = 10
	soft, err := model.NewSoftmax(192, classes)
	if err != nil {
		t.Fatal(err)
	}
	theta := make([]float32, soft.Params)
	for i := range theta {
		theta[i] = float32(math.Sin(float64(i)))
	}
	type drawing struct {
		Pixels []int `json:"pixels"`
		Label  int   `json:"label"`
	}
	var drawings []drawing
	mean, one := make([]float64, soft.Params), make([]float32, soft.Params)
	all, features := make([]float32, images.Len()*192), make([][]float32, images.Len())
	if err := feature.ExtractAll(hog, images.Pixels, all, 1); err != nil {
		t.Fatal(err)
	}
	scratch := soft.NewScratch()
	for i := range features {
		picture := images.Pixels[i*784 : (i+1)*784]
		d := drawing{Label: int(images.Labels[i])}
		for _, v := range picture {
			d.Pixels = append(d.Pixels, int(v))
		}
		drawings = append(drawings, d)
		features[i] = all[i*192:][:192]
		soft.Grad(theta, features[i], float64(d.Label), one, scratch)
		for j, v := range one {
			mean[j] += float64(v) / float64(len(features))
		}
	}
	drawings = append(drawings, drawing{Pixels: make([]int, 784)})
	text, err := json.Marshal(drawings)
	if err != nil {
		t.Fatal(err)
	}
	b.Open(origin + "/")
	got := browsertest.Value[[][]float64](b, fmt.Sprintf(`(async () => {
		const {featuresOf, gradient} = await import("./features.js"), d = %s, theta = Float32Array.from({length: 1930}, (_, i) => Math.sin(i));
		return [...d.map(({pixels}) => [...featuresOf(pixels)]), [...gradient(theta, d.slice(0, -1))]];
	})()`, text))
	worst := 0.0
	for i, want := range features {
		for j, v := range want {
			worst = max(worst, math.Abs(float64(v)-got[i][j]))
		}
	}
	for _, v := range got[len(features)] { // nothing is drawn
		worst = max(worst, math.Abs(v))
	}
	for j, v := range mean {
		worst = max(worst, math.Abs(v-got[len(features)+1][j]))
	}
	t.Logf("largest difference %.2g", worst)
	if !(worst < 1e-4) {
		t.Errorf("the page differs from the model by %g", worst)
	}
	if wrong := b.Trouble(origin); len(wrong) > 0 {
		t.Errorf("the page says %q", wrong)
	}
}
