package endpoint

// Kinds of metrics.
const (
	Counter = "counter"
	Gauge   = "gauge"
)

// Sample is one value of a metric.
type Sample struct {
	// Labels holds names and values in turn. A value is from a closed set and never comes
	// from a client.
	Labels []string
	Value  float64
}

// Metric is a family of samples.
type Metric struct {
	Name, Help string
	Kind       string // Counter or Gauge
	Samples    []Sample
}
