package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/eventd/eventd/hack/release/image"
)

const (
	homepage = "https://github.com/eventd/eventd"
	license  = "Apache-2.0"
)

// source is the checkout that is built, and which release it is.
type source struct {
	// dir is the root of the checkout.
	dir string
	// version is a tag such as v1.2.3, commit the hash that it names.
	version, commit string
	// repository is where the image will be, or empty if that is unknown.
	repository string
	// created is the time of every file that is made: that of the commit, so that it is
	// the same wherever the commit is built.
	created time.Time
}

// parse reads s from the command line of a command, which may have flags of its own.
func (s *source) parse(flags *flag.FlagSet, args []string) error {
	s.addFlags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: %s takes flags only", flags.Arg(0), flags.Name())
	}
	if !versions.MatchString(s.version) {
		return fmt.Errorf("-version is %q, and must be one such as v1.2.3", s.version)
	}
	return nil
}

func (s *source) addFlags(flags *flag.FlagSet) {
	s.created = time.Unix(0, 0).UTC()
	flags.StringVar(&s.dir, "source", ".", "the `folder` of the checkout")
	flags.StringVar(&s.version, "version", "", "the version, such as v1.2.3")
	flags.StringVar(&s.commit, "commit", "", "the `hash` of the commit")
	flags.Func("epoch", "the time of all files, in `seconds` since 1970 (SOURCE_DATE_EPOCH)", func(value string) error {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errors.New("must be a whole number")
		}
		s.created = time.Unix(seconds, 0).UTC()
		return nil
	})
}

// addRepositoryFlag adds the flag of the commands that make the image.
func (s *source) addRepositoryFlag(flags *flag.FlagSet) {
	flags.Func("image-repository", "the `repository` of the image, such as registry.example/eventd", func(value string) (err error) {
		if s.repository = value; value != "" {
			_, err = name.NewRepository(value)
		}
		return err
	})
}

// versions are those that krew, Helm and registries accept.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// chart is the folder of the chart.
func (s source) chart() string { return filepath.Join(s.dir, "deploy", "chart") }

// description is the one of the image.
func (s source) description() image.Description {
	return image.Description{
		Title:       "eventd",
		Description: "One pipeline for the Events of a Kubernetes cluster",
		Source:      homepage,
		License:     license,
		Version:     s.version,
		Revision:    s.commit,
		Created:     s.created,
		Repository:  s.repository,
	}
}
