package emulator_test

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/ebitengine/purego"
)

// bind sets the functions of a driver to those of the library.
func bind(d *driver, library uintptr) {
	v := reflect.ValueOf(d).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("lib"); name != "" {
			purego.RegisterLibFunc(v.Field(i).Addr().Interface(), library, name)
		}
	}
}

// lockThread keeps the test on the thread whose current context is set.
func lockThread(t *testing.T) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
}
