package certificate_test

import (
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
)

// One side writes, the other trusts nothing but the theorems.
func ExampleDocument_Verify() {
	d, err := account.Certify(context.Background(), account.Query{
		Participation: dp.All, Eps0: 1, Population: 100, Rounds: 10, Delta: 1e-5}, certificate.BlanketPLD)
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := d.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	received, err := certificate.Decode(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	verdict, err := received.Verify(context.Background())
	fmt.Println(verdict.Delta <= 1e-5, err)

	received.Claim.Eps *= .99
	_, err = received.Verify(context.Background())
	fmt.Println(err != nil)
	// Output:
	// true <nil>
	// true
}
