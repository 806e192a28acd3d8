package operate

import (
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/client"

	roles "github.com/riffle-dp/riffle/protocol/client"
)

// dataClient is a client with data for tasks that train, and a row that answers questions;
// service/client says what its methods do.
type dataClient struct {
	train.LocalClient
	rows measure.LocalClient
}

func (c dataClient) Open(task wire.Task) (client.Gradient, error) {
	if roles.Question(task) != "" {
		return c.rows.Open(task)
	}
	return c.LocalClient.Open(task)
}

func (c dataClient) Close(task wire.Task) {
	c.LocalClient.Close(task)
	c.rows.Close(task)
}

// askedClient is a client whose gradients a program computes, with a row that answers questions.
type askedClient struct {
	programClient
	rows measure.LocalClient
}

func (c askedClient) Open(task wire.Task) (client.Gradient, error) {
	if roles.Question(task) != "" {
		return c.rows.Open(task)
	}
	return c.programClient.Open(task)
}

func (c askedClient) Close(task wire.Task) { c.rows.Close(task) }
