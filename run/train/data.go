package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/dataset/mnist"
	"github.com/riffle-dp/riffle/learn/feature"
)

// Values of Config.Model.
const (
	inkLinear   = "ink-linear"
	shapeLinear = "shape-linear"
	hogLinear   = "hog-linear"
	softmax     = "softmax"
	cnn         = "cnn"
	pcaMLP      = "pca-mlp"
	linear      = "linear"
	external    = "external" // a program computes it
)

// histograms says whether the model's features are gradient histograms of a grey image.
func (c LearningConfig) histograms() bool {
	return c.Model == inkLinear || c.Model == shapeLinear || c.Model == hogLinear
}

// Data is a data set, prepared for a model.
type Data struct {
	Train, Eval *dataset.Table
	// EvalImages are the images behind Eval, nil for a table. EvalName says whether they are
	// the "test" or the "validation" set.
	EvalImages *dataset.Images
	EvalName   string
	Examples   int64 // number of examples in Eval; 0: a program has them and does not say
	// Classes names the classes, an image's by number; nil for a regression. ClassNames are
	// those for people: the names in a folder of images if it has them, otherwise Classes.
	Classes, ClassNames []string
	// PCA makes the features of pca-mlp. Public is the number of training examples on which
	// it was fitted; Train does not contain them.
	PCA    *feature.PCA
	Public int

	// Warnings say which parts of a table will be learned badly, and Notes what was read off it.
	Warnings, Notes []string

	program *program // that computes gradients; nil: there is none
	columns []string // of a CSV file
	rows    int      // number of its rows, test and training
	norm    float64  // public bound on the norm of a row's features; 0: none
	odd     error    // describes pictures that cannot be used; nil: all can
	// pictures is the number of all that the folder has.
	pictures int
	// digest identifies the rows, or what a program says of its model; nil: they cannot change.
	digest []byte
}

// imageModel returns the model for images if none is asked for: upright histograms for MNIST,
// recognised by its training labels, because they suit handwriting only; histograms of the
// picture as it is for other grey images; and pixels for coloured ones.
func imageModel(data string) string {
	if data == "mnist" {
		return inkLinear
	}
	if _, err := os.Stat(filepath.Join(data, dataset.CIFARTest)); err == nil {
		return softmax
	}
	if labels, err := dataset.TrainingLabels(os.DirFS(data)); err == nil && mnist.Known(labels) {
		return inkLinear
	}
	return shapeLinear // an unreadable folder is refused when it is loaded
}

// oddPictures describes pictures that cannot be used.
func oddPictures(images *dataset.Images) error {
	n := 0
	for _, blank := range images.Blank {
		if blank {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("train: %d of %d pictures do not fit, and count as a gradient of 0: %w", n, images.Len(), images.Why)
}

// imageNorm is the norm of an image's pixels.
const imageNorm = 3

// LoadImages reads the data set that a configuration names: "mnist", a folder of IDX or CIFAR-10
// files, or of PNG and JPEG files, a folder for each class, of which the configuration has the
// size.
func LoadImages(c Config) (train, test *dataset.Images, err error) {
	return c.readImages(nil, false)
}

// readImages is LoadImages with the given classes of pictures; nil: those of Classes, else the
// folders'. With blanks, pictures that cannot be used are blank.
func (c Config) readImages(classes []string, blanks bool) (train, test *dataset.Images, err error) {
	data := c.Data
	if data == "mnist" && c.ImageSize == "" {
		return mnist.Load()
	}
	fsys := os.DirFS(data)
	switch pictures := dataset.IsPictures(fsys); {
	case pictures && c.ImageSize == "":
		return nil, nil, inputError("data %s: a folder of pictures needs image-size, the public size to which each is brought, as 28x28", data)
	case pictures:
		p := dataset.PictureConfig{Colour: c.ImageColours == rgb, TestFraction: c.TestFraction, Seed: uint64(c.Seed), Classes: classes, Blanks: blanks}
		if p.Width, p.Height, err = dataset.PictureSize(c.ImageSize); err != nil {
			return nil, nil, inputError("image-size %v", err)
		}
		if p.Classes == nil {
			var declared dataset.CSVConfig
			if err := c.declare(&declared); err != nil {
				return nil, nil, err
			}
			p.Classes = declared.Classes
		}
		if train, test, err = dataset.ReadPictures(fsys, filepath.Base(filepath.Clean(data)), p); err != nil {
			return nil, nil, fmt.Errorf("train: %w%s%w", err, Hint(err), ErrInput)
		}
		return train, test, nil
	case c.ImageSize != "":
		if _, err := os.Stat(data); data != "mnist" && err != nil {
			return nil, nil, inputError("data %s: %v", data, err)
		}
		return nil, nil, inputError("image-size goes with a folder of PNG and JPEG files, a folder for each class, not with data %s", data)
	}
	train, test, err = dataset.ReadFolder(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, inputError("data %s: %v (want mnist, a folder of IDX or CIFAR-10 files or of pictures, a folder for each class, or a .csv file)", data, err)
	}
	if err != nil {
		return nil, nil, inputError("data %s: %v", data, err)
	}
	return train, test, nil
}

// extractor returns the extractor that turns images of the given shape into the named model's
// features; those of pca-mlp then go through its PCA.
func extractor(name string, images *dataset.Images) (*feature.Extractor, error) {
	if (LearningConfig{Model: name}).histograms() && images.Channels != 1 {
		return nil, fmt.Errorf("images have %d channels, must have 1 (softmax, linear and pca-mlp take any)", images.Channels)
	}
	switch name {
	case inkLinear:
		return feature.NewInk(feature.DefaultHOG(images.Width, images.Height))
	case shapeLinear:
		return feature.NewInk(feature.ShapeHOG(images.Width, images.Height))
	case hogLinear:
		return feature.NewHOG(feature.DefaultHOG(images.Width, images.Height))
	case cnn:
		if images.Width != 28 || images.Height != 28 || images.Channels != 1 {
			return nil, fmt.Errorf("images are %d×%d×%d, must be 28×28×1", images.Width, images.Height, images.Channels)
		}
		return feature.NewPixels(images.Size(), 0)
	case pcaMLP:
		return feature.NewPixels(images.Size(), 0)
	default:
		return feature.NewPixels(images.Size(), imageNorm)
	}
}

// load reads the data of a configuration and makes its features. If Validation is set, the
// test set is not used at all.
func (c Config) load() (*Data, error) {
	load := c.loadImages
	if c.isCSV() {
		load = c.loadCSV
	}
	d, err := load()
	if err != nil {
		return nil, err
	}
	d.Examples = int64(d.Eval.Len())
	if d.ClassNames == nil {
		d.ClassNames = d.Classes
	}
	if c.Model == pcaMLP {
		if err := d.reduce(c); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (c Config) loadImages() (*Data, error) {
	return c.prepareImages(nil, false)
}

// prepareImages is loadImages with the arguments of readImages.
func (c Config) prepareImages(classes []string, blanks bool) (*Data, error) {
	trainImages, testImages, err := c.readImages(classes, blanks)
	if err != nil {
		return nil, err
	}
	d := &Data{EvalImages: testImages, EvalName: "test"}
	if c.Data != "mnist" || c.ImageSize != "" {
		train, test := trainImages.Digest(), testImages.Digest()
		d.digest = slices.Concat(train[:], test[:])
	}
	if c.ImageSize != "" {
		d.odd, d.pictures = oddPictures(trainImages), trainImages.Len()+testImages.Len()
		if c.Classes == "" && classes == nil {
			d.Notes = append(d.Notes, took(trainImages.Names, "the folder", ""))
		}
	}
	if c.Validation > 0 {
		d.EvalName = "validation"
		if trainImages, d.EvalImages, err = holdOut(c, trainImages); err != nil {
			return nil, err
		}
	}
	e, err := extractor(c.Model, trainImages)
	if err != nil {
		return nil, inputError("model %s: %v", c.Model, err)
	}
	if d.Train, err = trainImages.Table(e, int(c.Workers)); err != nil {
		return nil, inputError("%v", err)
	}
	if d.Eval, err = d.EvalImages.Table(e, int(c.Workers)); err != nil {
		return nil, inputError("%v", err)
	}
	switch {
	case c.histograms():
		d.norm = feature.DefaultHOG(28, 28).Norm // the same as ShapeHOG's
	case c.Model == softmax || c.Model == linear:
		d.norm = imageNorm
	}
	d.ClassNames = trainImages.Names
	for k := range d.Train.Classes {
		d.Classes = append(d.Classes, fmt.Sprint(k))
	}
	if c.ImageSize != "" { // names are all that makes two folders' classes the same
		d.Classes = trainImages.Names
	}
	return d, nil
}

// holdOut takes a validation set out of the training set.
func holdOut[T interface {
	Len() int
	Subset([]int) (T, error)
}](c Config, all T) (train, held T, err error) {
	rest, chosen, err := dataset.Split(all.Len(), int(min(c.Validation, 1<<40)), uint64(c.Seed))
	if err != nil {
		return train, held, inputError("%v", err)
	}
	if held, err = all.Subset(chosen); err == nil {
		train, err = all.Subset(rest)
	}
	return train, held, err
}

// components is the number of principal components of pca-mlp, as in Chen,
// Cao and Ge (arXiv:2401.04306), section 4.
const components = 60

// publicPart separates the choice of public examples from the choice of validation examples.
const publicPart = 0x7075626c6963 // "public"

// reduce fits principal axes on the examples declared public, removes these from the training
// set, and projects everything on the axes.
func (d *Data) reduce(c Config) error {
	public := int(min(c.Public, 1<<40))
	if public == 0 {
		public = min(5000, max(2, d.Train.Len()/10))
	}
	rest, chosen, err := dataset.Split(d.Train.Len(), public, uint64(c.Seed)^publicPart)
	if err != nil {
		return inputError("public: %v", err)
	}
	open, err := d.Train.Subset(chosen)
	if err != nil {
		return err
	}
	if d.Train, err = d.Train.Subset(rest); err != nil {
		return err
	}
	if d.PCA, err = feature.FitPCA(open.X, open.Dim, min(components, open.Dim, public-1)); err != nil {
		return inputError("%v", err)
	}
	d.Public = public
	d.Train, d.Eval = project(d.PCA, d.Train), project(d.PCA, d.Eval)
	return nil
}

// project returns the table with its rows on the axes.
func project(p *feature.PCA, t *dataset.Table) *dataset.Table {
	out := *t
	out.Dim, out.X = p.Dim, make([]float32, t.Len()*p.Dim)
	for i := range t.Len() {
		p.Project(t.Row(i), out.X[i*out.Dim:(i+1)*out.Dim])
	}
	return &out
}
