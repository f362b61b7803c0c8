package ranks

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Most bounds the number of ranks. A run with more workers is one in tasks.
const Most = 64

// Place is the place of a process among those that a launcher has started together.
type Place struct {
	Rank, Size int
	Address    string // of rank 0, as host:port
}

// launchers are the variables by which launchers tell a process its rank, and the number of ranks.
var launchers = []struct{ name, rank, size string }{
	{"torchrun and operators for PyTorch", "RANK", "WORLD_SIZE"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"MPICH", "PMI_RANK", "PMI_SIZE"},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
}

// FromEnvironment returns the place that a launcher has put into variables. getenv returns a variable, "" for none.
// MASTER_ADDR and MASTER_PORT are the address of rank 0. An agent of torchrun listens on that port itself; rank 0 then
// takes the next one.
func FromEnvironment(getenv func(string) string) (Place, error) {
	for _, l := range launchers {
		if getenv(l.rank) == "" || getenv(l.size) == "" {
			continue
		}
		rank, err := strconv.Atoi(getenv(l.rank))
		size, wrong := strconv.Atoi(getenv(l.size))
		if err != nil || wrong != nil || rank < 0 || rank >= size || size > Most {
			return Place{}, fmt.Errorf("%s=%s and %s=%s: must be the number of this process, from 0 on, and the "+
				"number of all, at most %d; tasks run a job on more", l.rank, getenv(l.rank), l.size,
				getenv(l.size), Most)
		}
		p := Place{Rank: rank, Size: size}
		if size == 1 {
			return p, nil
		}
		host := getenv("MASTER_ADDR")
		port, err := strconv.Atoi(getenv("MASTER_PORT"))
		if host == "" || err != nil || port < 1 || port > 65534 {
			return Place{}, fmt.Errorf("MASTER_ADDR=%s and MASTER_PORT=%s: must be the host of rank 0 and a port that "+
				"is free there, the same for all ranks", host, getenv("MASTER_PORT"))
		}
		if getenv("TORCHELASTIC_USE_AGENT_STORE") == "True" {
			port++
		}
		p.Address = net.JoinHostPort(host, strconv.Itoa(port))
		return p, nil
	}
	text := "no launcher has given this process a rank: none of "
	for i, l := range launchers {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s and %s (%s)", l.rank, l.size, l.name)
	}
	return Place{}, errors.New(text + " are set")
}
