package client_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// One enrolled client that takes part in whatever its policy allows. The keys
// come from the operators, by another way than from their servers.
func ExampleJoin() {
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := client.CreateLedger(dir); err != nil { // once in a client's life
		panic(err)
	}
	credential, err := client.NewCredential() // kept in a file; its public half is enrolled
	if err != nil {
		panic(err)
	}
	coordinator, operator := make(ed25519.PublicKey, 32), make(ed25519.PublicKey, 32)
	operator[0] = 1

	// The client's data: here a point whose distance from the model is to be small.
	point := []float32{0.3, -0.4}
	source := client.Func(len(point), func(theta, grad []float32) {
		for j := range grad {
			grad[j] = theta[j] - point[j]
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a real client goes on until it is told to stop
	config := client.JoinConfig{
		Coordinator: "https://coordinator.example", Shuffler: "https://shuffler.example",
		CoordinatorKey: coordinator, ShufflerKey: operator,
		Credential: credential, Directory: dir, Accountant: new(account.Accountant),
		Tasks: [][32]byte{{1}},
	}
	policy := &config.Policy // what the client agrees to, whatever it is asked
	policy.MaxEps0, policy.MaxEps, policy.Delta, policy.MinReports = 4, 2, 1e-6, 500
	err = client.Join(ctx, config, source)
	fmt.Println("stopped:", err)
	// Output: stopped: <nil>
}

// A credential's two halves, a line each.
func ExampleNewCredential() {
	c, err := client.NewCredential()
	if err != nil {
		panic(err)
	}
	secret := c.Secret()                                                // for the client's own file
	public, err := client.ParsePublic(client.MarshalPublic(c.Public())) // for the shuffler's operator
	if err != nil {
		panic(err)
	}
	again, err := client.ParseCredential(secret)
	if err != nil {
		panic(err)
	}
	fmt.Println(wire.ClientID(public) == wire.ClientID(again.Public()))
	// Output: true
}
