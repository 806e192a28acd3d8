// Package mnist carries the MNIST database of handwritten digits: 60,000 training and 10,000
// test images of 28×28 pixels in ten classes.
//
// The files, 11 MB, are embedded in programs that import this package. SOURCE.md beside them
// says where they come from.
package mnist

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"

	"github.com/riffle-dp/riffle/learn/dataset"
)

//go:embed *.gz
var files embed.FS

// sums holds the SHA-256 of each embedded file.
func sums() map[string]string {
	return map[string]string{
		dataset.TrainImages + ".gz": "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971",
		dataset.TrainLabels + ".gz": "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203",
		dataset.TestImages + ".gz":  "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be",
		dataset.TestLabels + ".gz":  "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b",
	}
}

// labelsSum is the SHA-256 of the 60,000 training labels in their order.
const labelsSum = "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13"

// Known says whether labels are MNIST's training labels, in MNIST's order.
func Known(labels []uint8) bool { return fmt.Sprintf("%x", sha256.Sum256(labels)) == labelsSum }

// Load returns the training and the test images, after checking the files'
// SHA-256. Each call reads them anew, in about half a second.
func Load() (train, test *dataset.Images, err error) {
	if err := verify(files, sums()); err != nil {
		return nil, nil, err
	}
	return dataset.ReadFS(files, "mnist")
}

func verify(fsys fs.FS, sums map[string]string) error {
	for name, want := range sums {
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return fmt.Errorf("mnist: %w", err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want {
			return fmt.Errorf("mnist: %s: SHA-256 %s, want %s", name, got, want)
		}
	}
	return nil
}
