package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

const deploy = "../../examples/deploy/"

func readDeploy(t *testing.T, name string) string {
	b, err := os.ReadFile(deploy + name)
	require.NoError(t, err)
	return string(b)
}

// unitOf returns the keys of a unit of systemd, by section and key.
func unitOf(t *testing.T, text string) map[string]string {
	keys, section := map[string]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		default:
			require.True(t, ok && section != "", line)
			keys[section+key] = value
		}
	}
	return keys
}

// TestTheSystemdUnitsRunAJob runs the command of the service with a job in the place of /etc/gstream/NAME.yaml.
func TestTheSystemdUnitsRunAJob(t *testing.T) {
	service := unitOf(t, readDeploy(t, "systemd/gstream@.service"))
	timer := unitOf(t, readDeploy(t, "systemd/gstream@.timer"))
	job, out := jobFile(t, "  - limit: 2", "")
	args := strings.Fields(service["[Service]ExecStart"])
	require.Equal(t, "/usr/bin/gstream", args[0])
	for i := range args {
		if args[i] == "/etc/gstream/%i.yaml" {
			args[i] = job
		}
	}
	for range 2 { // each night
		code, _, stderr := gstream(args[1:]...)
		require.Equal(t, exitOK, code, stderr)
		require.FileExists(t, out)
	}
	codes := service["[Service]RestartPreventExitStatus"]
	require.Equal(t, fmt.Sprintf("1 %d %d", exitJob, exitData), codes)
	require.Equal(t, "timers.target", timer["[Install]WantedBy"])
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		b, err := exec.Command("systemd-analyze", "calendar", timer["[Timer]OnCalendar"]).CombinedOutput()
		require.NoError(t, err, "%s", b)
	}
}

// TestTheCronJobRunsItsJob runs the container's arguments with the job of the ConfigMap.
func TestTheCronJobRunsItsJob(t *testing.T) {
	config, cron, ok := strings.Cut(readDeploy(t, "kubernetes/cronjob.yaml"), "\n---\n")
	require.True(t, ok)
	var files struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
	}
	require.NoError(t, yaml.Unmarshal([]byte(config), &files))
	require.Equal(t, "ConfigMap", files.Kind)
	type mount struct {
		Name string
		Path string `yaml:"mountPath"`
	}
	type container struct {
		Name, Image string
		Args        []string
		Resources   struct{ Limits map[string]string }
		Mounts      []mount `yaml:"volumeMounts"`
	}
	var c struct {
		Kind string
		Spec struct {
			ConcurrencyPolicy string `yaml:"concurrencyPolicy"`
			JobTemplate       struct {
				Spec struct {
					PodFailurePolicy struct {
						Rules []struct {
							Action      string
							OnExitCodes struct {
								ContainerName string `yaml:"containerName"`
								Values        []int
							} `yaml:"onExitCodes"`
						}
					} `yaml:"podFailurePolicy"`
					Template struct {
						Spec struct {
							Containers []container
							Volumes    []struct {
								Name      string
								ConfigMap struct{ Name string } `yaml:"configMap"`
							}
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(cron), &c))
	require.Equal(t, "CronJob", c.Kind)
	require.Equal(t, "Forbid", c.Spec.ConcurrencyPolicy)
	spec := c.Spec.JobTemplate.Spec
	require.Equal(t, []int{exitDefect, exitJob, exitData}, spec.PodFailurePolicy.Rules[0].OnExitCodes.Values)
	one := spec.Template.Spec.Containers[0]
	require.Equal(t, one.Name, spec.PodFailurePolicy.Rules[0].OnExitCodes.ContainerName)
	require.Equal(t, files.Metadata.Name, spec.Template.Spec.Volumes[0].ConfigMap.Name)
	require.Equal(t, "4Gi", one.Resources.Limits["memory"])
	dir := t.TempDir()
	for name, text := range files.Data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	data, err := filepath.Abs(data)
	require.NoError(t, err)
	args := []string{}
	for _, a := range one.Args {
		for _, m := range one.Mounts {
			a = strings.Replace(a, m.Path, dir, 1)
		}
		args = append(args, a)
	}
	args = append(args, "--set", "data="+data, "--set", "out="+filepath.Join(dir, "out.parquet"))
	code, _, stderr := gstream(args...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stderr, `"type":"done"`)
}

// TestTheImageIsBuiltOfWhatIsThere checks the recipe against the module: its Go version, its paths, its program.
func TestTheImageIsBuiltOfWhatIsThere(t *testing.T) {
	recipe := readDeploy(t, "Dockerfile")
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)[1]
	require.Contains(t, recipe, fmt.Sprintf("FROM golang:%s-", version))
	copied := regexp.MustCompile(`(?m)^COPY (go\.mod go\.sum) `).FindStringSubmatch(recipe)
	for _, name := range strings.Fields(copied[1]) {
		require.FileExists(t, "../../"+name)
	}
	require.Contains(t, recipe, "./cmd/gstream\n")
	require.Contains(t, recipe, "COPY --from=build /gstream /usr/bin/gstream\n")
	require.Contains(t, recipe, `ENTRYPOINT ["/usr/bin/gstream"]`)
	require.Contains(t, recipe, "ca-certificates", "for object stores")
}

// TestManualPagesHaveAllCommandsAndFlags writes the pages, and lets groff read them if it is there.
func TestManualPagesHaveAllCommandsAndFlags(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := gstream("man", dir)
	require.Equal(t, exitOK, code, stderr)
	root := newRoot(&leftovers{})
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, "gstream-"+c.Name()+".1"))
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(c.LocalFlags().FlagUsages()), "\n") {
			if m := regexp.MustCompile(`^\s*(?:-\w, )?--([a-z-]+)`).FindStringSubmatch(line); m != nil {
				require.Contains(t, string(b), strings.ReplaceAll("--"+m[1], "-", `\-`), c.Name())
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 15)
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	var warnings bytes.Buffer
	cmd := exec.Command("groff", append([]string{"-man", "-Tutf8", "-wall", "-z"}, pages...)...)
	cmd.Stderr = &warnings
	require.NoError(t, cmd.Run(), "%s", &warnings)
	lines := regexp.MustCompile(`(?m)^.*cannot (adjust|break) line.*$\n?`).ReplaceAllString(warnings.String(), "")
	require.Empty(t, lines)
}
