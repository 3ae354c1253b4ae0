// Generate makes Go code from the protobuf files in a directory's subdirectory proto: the messages and the
// Connect services. It contains the compiler and both plugins in exact versions, so that nothing needs to be
// installed.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: generate DIRECTORY IMPORT-PATH")
		os.Exit(2)
	}
	if err := generate(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate makes the Go files of the protobuf files in dir/proto and writes them to dir. path is the import
// path of their package.
func generate(ctx context.Context, dir, path string) error {
	sources, err := filepath.Glob(filepath.Join(dir, "proto", "*.proto"))
	if err != nil || len(sources) == 0 {
		return errors.Join(err, errors.New("no files in "+filepath.Join(dir, "proto")))
	}
	q := &pluginpb.CodeGeneratorRequest{}
	for _, s := range sources {
		q.FileToGenerate = append(q.FileToGenerate, filepath.Base(s))
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{filepath.Join(dir, "proto")}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, q.FileToGenerate...)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range files {
		for i := range f.Imports().Len() {
			add(q, seen, protoutil.ProtoFromFileDescriptor(f.Imports().Get(i).FileDescriptor))
		}
		add(q, seen, protoutil.ProtoFromFileDescriptor(f))
	}
	for plugin, options := range map[string]string{"protoc-gen-go": "", "protoc-gen-connect-go": ",package_suffix,simple"} {
		q.Parameter = proto.String("module=" + path + options)
		if err := run(ctx, plugin, q, dir); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

func add(q *pluginpb.CodeGeneratorRequest, seen map[string]bool, f *descriptorpb.FileDescriptorProto) {
	if !seen[f.GetName()] {
		seen[f.GetName()] = true
		q.ProtoFile = append(q.ProtoFile, f)
	}
}

// run runs a compiler plugin on the request q and writes the files that it returns to dir.
func run(ctx context.Context, plugin string, q *pluginpb.CodeGeneratorRequest, dir string) error {
	in, err := proto.Marshal(q)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var reply pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &reply); err != nil {
		return err
	}
	if reply.Error != nil {
		return errors.New(reply.GetError())
	}
	for _, f := range reply.File {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
