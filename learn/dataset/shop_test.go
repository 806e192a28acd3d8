package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// The shop's customers are the same everywhere, and row i does not depend on how many there are.
func TestShopIsTheSameEverywhere(t *testing.T) {
	var few, many bytes.Buffer
	if err := WriteShop(&few, 100, 1); err != nil {
		t.Fatal(err)
	}
	if err := WriteShop(&many, 20000, 1); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(many.Bytes(), few.Bytes()) {
		t.Error("fewer rows are other rows")
	}
	sum := sha256.Sum256(few.Bytes())
	if got := hex.EncodeToString(sum[:8]); got != "b329595be85f719e" {
		t.Errorf("digest %s\n%.300s", got, few.String())
	}
	if WriteShop(&few, 0, 1) == nil {
		t.Error("no rows were written")
	}

	c := CSVConfig{Label: "bought"}
	for what, text := range map[string]string{
		"categories": "city=berlin|paris|rome|oslo|lyon|Paris\\, TX,plan=free|plus|pro", "missing": "age=50+indicator,city=rome+indicator,spent=50+indicator",
		"drop": "id,name,amount", "classes": "no|yes",
	} {
		if err := c.Declare(what, text); err != nil {
			t.Fatal(err)
		}
	}
	got := parse(t, many.String(), c)
	rare, empty := 0, 0.0
	for _, y := range got.Table.Y {
		rare += int(y)
	}
	for i := range got.Table.Len() {
		empty += float64(got.Table.Row(i)[1]) // "age missing"
	}
	if rare < 1300 || rare > 1500 || empty < 1000 || empty > 1400 || !strings.Contains(many.String(), `"Paris, TX"`) {
		t.Errorf("%d of 20000 bought, %v ages are missing", rare, empty)
	}
}
