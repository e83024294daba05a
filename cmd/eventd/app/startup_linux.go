package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// forgetStartup lets go of the memory that only the start of the process needed.
// Hundreds of packages that eventd is linked with set themselves up, for which
// most of the binary is read once. What is needed again is read again, from the
// same page cache: nothing in these mappings is ever written.
func forgetStartup() error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }()
	return forget(maps, binary)
}

// forget lets go of the mappings of a file that cannot be written to.
func forget(maps io.Reader, file string) error {
	var errs []error
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasSuffix(line, " "+file) {
			continue
		}
		var begin, end uintptr
		var permissions string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &begin, &end, &permissions); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if strings.Contains(permissions, "w") {
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, begin, end-begin, syscall.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("%q: %w", line, errno))
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}
