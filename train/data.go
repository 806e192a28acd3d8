package train

import (
	"fmt"

	"github.com/riffle-dp/riffle/dataset"
	"github.com/riffle-dp/riffle/dataset/mnist"
	"github.com/riffle-dp/riffle/feature"
	"github.com/riffle-dp/riffle/model"
)

// models are the names of Config.Model.
var models = []string{"hog-linear", "softmax"}

// Data is a data set made ready for a model.
type Data struct {
	Train, Eval *dataset.Table
	// EvalImages are the images behind Eval, and EvalName says whether they
	// are the "test" or the "validation" set.
	EvalImages *dataset.Images
	EvalName   string
}

// LoadImages reads the named data set: "mnist", or a folder of IDX files.
func LoadImages(data string) (train, test *dataset.Images, err error) {
	if data == "mnist" {
		return mnist.Load()
	}
	train, test, err = dataset.ReadFolder(data)
	if err != nil {
		return nil, nil, inputError("data %s: %v", data, err)
	}
	return train, test, nil
}

// Extractor returns the features that the named model learns from, for images
// of the given shape.
func Extractor(name string, images *dataset.Images) (feature.Extractor, error) {
	if name == "softmax" {
		return feature.NewPixels(feature.PixelsConfig{Size: images.Size(), Norm: 3})
	}
	if images.Channels != 1 {
		return nil, fmt.Errorf("images have %d channels, must have 1", images.Channels)
	}
	return feature.NewHOG(feature.DefaultHOG().ForSize(images.Width, images.Height))
}

// Load reads the data of a configuration and extracts its features. With
// Validation set, the test set is not used at all.
func (c Config) Load() (*Data, error) {
	trainImages, testImages, err := LoadImages(c.Data)
	if err != nil {
		return nil, err
	}
	d := &Data{EvalImages: testImages, EvalName: "test"}
	if c.Validation > 0 {
		train, held, err := dataset.Split(trainImages.Len(), int(min(c.Validation, 1<<40)), uint64(c.Seed))
		if err != nil {
			return nil, inputError("%v", err)
		}
		if d.EvalImages, err = trainImages.Subset(held); err != nil {
			return nil, err
		}
		if trainImages, err = trainImages.Subset(train); err != nil {
			return nil, err
		}
		d.EvalName = "validation"
	}
	extractor, err := Extractor(c.Model, trainImages)
	if err != nil {
		return nil, inputError("model %s: %v", c.Model, err)
	}
	if d.Train, err = trainImages.Table(extractor, int(c.Workers)); err != nil {
		return nil, inputError("%v", err)
	}
	if d.Eval, err = d.EvalImages.Table(extractor, int(c.Workers)); err != nil {
		return nil, inputError("%v", err)
	}
	return d, nil
}

// clients gives every simulated client its example and its gradient.
type clients struct {
	population dataset.Population
	table      *dataset.Table
	model      model.Model
}

func (c clients) Size() int64 { return c.population.Clients() }

func (c clients) Worker() func(id int64, theta, grad []float32) {
	scratch := c.model.NewScratch()
	return func(id int64, theta, grad []float32) {
		i := c.population.Example(id)
		c.model.Grad(theta, c.table.Row(i), int(c.table.Y[i]), grad, scratch)
	}
}
