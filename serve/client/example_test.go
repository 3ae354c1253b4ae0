package client_test

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/serve/client"
)

func Example() {
	if err := fix(context.Background()); err != nil {
		fmt.Println(err)
	}
}

// fix repairs a workspace in a sandbox and promotes the result. docs/serve.md shows it.
func fix(ctx context.Context) error {
	c, err := client.AtSocket("/var/lib/snapfs/serve.sock")
	if err != nil {
		return err
	}
	made, err := c.NewSandboxWithResponse(ctx, nil, client.NewSandbox{Workspace: "/srv/app"})
	if err := client.Err(made, err); err != nil {
		return err
	}
	name, live := made.JSON201.Name, &client.ExecParams{Accept: new(client.NDJSON)}
	events := client.Stream[client.ExecEvent]
	for event, err := range events(c.Exec(ctx, name, live, client.ExecRequest{Command: "make fix test"})) {
		if err != nil {
			return err
		}
		fmt.Print(event.Text)
	}
	done, err := c.PromoteWithResponse(ctx, name, nil, client.PromoteInputBody{})
	return client.Err(done, err)
}
