package operators_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

// TestATaskHasItsPartOfAShare divides shares of the budget that a task was granted, or else of its lease's budget,
// among lanes and joins.
func TestATaskHasItsPartOfAShare(t *testing.T) {
	l := gpu.NewBudget("host", gpu.HostMemory, 9600, nil).Lease("join")
	defer func() { require.NoError(t, l.Close()) }()
	for _, c := range []struct {
		task  operators.Task
		share grant.Share
		want  int64
	}{
		{operators.Task{}, grant.GroupTables, 1200},
		{operators.Task{Lanes: 4}, grant.GroupTables, 300},
		{operators.Task{Lanes: 4, Grant: operators.Grant{Joins: 2}}, grant.GroupTables, 300},
		{operators.Task{Lanes: 4, Grant: operators.Grant{Joins: 2}}, grant.JoinPairs, 400},
		{operators.Task{Lanes: 4, Grant: operators.Grant{Joins: 2}}, grant.Resident, 2880},
		{operators.Task{Lanes: 4, Grant: operators.Grant{Joins: 2}}, grant.SortFree, 4800},
		{operators.Task{Lanes: 4, Grant: operators.Grant{Budget: 960}}, grant.GroupTables, 30},
	} {
		c.task.Lease = l
		require.Equal(t, c.want, c.task.Share(c.share), "%s of %d lanes, %+v", c.share.Name, c.task.Lanes, c.task.Grant)
	}
}
