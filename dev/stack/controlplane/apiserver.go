package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"convoy.dev/convoy/dev/stack/ready"
)

// nodes are the names of the nodes that kwok plays.
var nodes = []string{"node-1", "node-2"}

// apiServer is the little that starting needs of the API server: too little for a client library.
type apiServer struct {
	url    string
	client *http.Client
}

func newAPIServer(address string, p pki) (*apiServer, error) {
	client, err := p.adminClient()
	return &apiServer{url: "https://" + address, client: client}, err
}

func (s *apiServer) ready(ctx context.Context) error {
	return ready.OK(ctx, s.client, s.url+"/readyz")
}

// defaultAccount succeeds when pods can be created in the namespace default.
func (s *apiServer) defaultAccount(ctx context.Context) error {
	return ready.OK(ctx, s.client, s.url+"/api/v1/namespaces/default/serviceaccounts/default")
}

// createNodes makes the nodes; those of an earlier start stay.
func (s *apiServer) createNodes(ctx context.Context) error {
	for _, name := range nodes {
		room := map[string]string{"cpu": "64", "memory": "256Gi", "pods": "500"}
		node := map[string]any{
			"apiVersion": "v1",
			"kind":       "Node",
			"metadata": map[string]any{
				"name":   name,
				"labels": map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
			},
			"status": map[string]any{"allocatable": room, "capacity": room},
		}
		if err := s.create(ctx, "/api/v1/nodes", node); err != nil {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	return nil
}

func (s *apiServer) create(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusCreated, http.StatusConflict:
		return nil
	default:
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("POST %s: %s: %s", path, response.Status, answer)
	}
}

// nodesReady succeeds when every node is Ready and free of taints, so that pods can be scheduled.
func (s *apiServer) nodesReady(ctx context.Context) error {
	for _, name := range nodes {
		if err := s.nodeReady(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *apiServer) nodeReady(ctx context.Context, name string) error {
	var node struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := s.get(ctx, "/api/v1/nodes/"+name, &node); err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has taint %s", name, node.Spec.Taints[0].Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", name)
}

func (s *apiServer) get(ctx context.Context, path string, object any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(object)
}
