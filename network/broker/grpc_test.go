package broker

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/snapfs/snapfs/network"
)

// A call of gRPC is a POST request to /SERVICE/METHOD, so rules with methods and paths, and secrets, are for it too.
func TestCallsOfGRPCPassByRules(t *testing.T) {
	service := health.NewServer()
	var keys []string
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		keys = append(keys, md.Get("x-api-key")...)
		return handle(ctx, req)
	}))
	grpc_health_v1.RegisterHealthServer(server, service)
	t.Cleanup(server.Stop)
	rule := "POST https://" + serverName + "/grpc.health.v1.Health/"
	w := newWorld(t, rule+"Check+rate=2/h,"+rule+"Watch", server.ServeHTTP, nil)
	conn, err := grpc.NewClient("passthrough:///"+serverName+":443", grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(w.roots(), serverName)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return w.dial(serverName, 443), nil }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", w.key)
	for range 2 {
		if r, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatal(r, err)
		}
	}
	if len(keys) != 2 || keys[0] != realKey {
		t.Errorf("the server got the keys %q", keys)
	}
	_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the rate of the rule "+rule+"Check+rate=2/h is reached") {
		t.Errorf("beyond the rate: %v", err)
	}
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the rate is the rule's: %v", err)
	}
	_, err = client.List(ctx, &grpc_health_v1.HealthListRequest{})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "no rule allows POST /grpc.health.v1.Health/List") {
		t.Errorf("without a rule: %v", err)
	}
	if ev := w.last(); ev.Allowed || ev.Kind != network.HTTP || ev.Path != "/grpc.health.v1.Health/List" {
		t.Errorf("%+v", ev)
	}
	// A stream, whose messages pass one by one.
	stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, grpc_health_v1.HealthCheckResponse_SERVING} {
		if r, err := stream.Recv(); err != nil || r.GetStatus() != want {
			t.Fatal(r, err)
		}
		service.SetServingStatus("s", grpc_health_v1.HealthCheckResponse_SERVING)
	}
	service.Shutdown() // a status of the server itself
	if _, err := stream.Recv(); err != nil {
		t.Error(err)
	}
}
