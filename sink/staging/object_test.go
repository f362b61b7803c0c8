package staging

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// noUploads returns an error if there is an upload of an object.
func noUploads(ctx context.Context, path string) error {
	return store.Uploads(ctx, path, func(store.Pending) error { return errors.New("an upload is left") })
}

// TestAnObjectHasAllItsParts writes an object of several parts, within memory for two of them, through faults.
func TestAnObjectHasAllItsParts(t *testing.T) {
	for _, cloud := range storetest.Clouds {
		t.Run(cloud.Lake[:2], func(t *testing.T) { hasAllItsParts(t, cloud) })
	}
}

func hasAllItsParts(t *testing.T, cloud storetest.Cloud) {
	storetest.Quick(t)
	endpoint := cloud.Start(t)
	content := make([]byte, 17<<20+3)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(content)
	for _, seed := range []uint64{0, 2} {
		faults := storetest.Random(seed, 0.2*float64(seed), storetest.Cut, storetest.Refuse, storetest.Drop)
		var parts atomic.Int64
		cloud.Use(t, storetest.Proxy(t, endpoint, func(r *http.Request) storetest.Fault {
			if r.Method == http.MethodPut {
				parts.Add(1)
			}
			return faults(r)
		}))
		lease := hosttest.Budget(t, 11<<20).Lease("sink")
		path := cloud.Lake + "a b/é.csv"
		f, err := Stage(t.Context(), path, seed > 0, lease)
		require.NoError(t, err)
		for at := 0; at < len(content); at += 1 << 20 {
			_, err = f.Write(content[at:min(at+1<<20, len(content))])
			require.NoError(t, err)
		}
		require.NoError(t, f.Commit(t.Context(), true))
		require.NoError(t, f.Abort()) // does nothing now
		require.NoError(t, lease.Close())
		require.GreaterOrEqual(t, parts.Load(), int64(4))
		cloud.Use(t, endpoint)
		got, _, err := store.Get(t.Context(), path, len(content))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
		_, err = Stage(t.Context(), path, false, lease)
		require.ErrorIs(t, err, os.ErrExist)
		require.NoError(t, noUploads(t.Context(), path))
	}
}

// TestAnObjectThatAppearsMeanwhileStays has another process that writes the object first.
func TestAnObjectThatAppearsMeanwhileStays(t *testing.T) {
	for _, cloud := range storetest.Clouds {
		t.Run(cloud.Lake[:2], func(t *testing.T) { appearsMeanwhile(t, cloud) })
	}
}

func appearsMeanwhile(t *testing.T, cloud storetest.Cloud) {
	storetest.Quick(t)
	cloud.Use(t, cloud.Start(t))
	lease := hosttest.Budget(t, 0).Lease("sink")
	path := cloud.Lake + "x.csv"
	f, err := Stage(t.Context(), path, false, lease)
	require.NoError(t, err)
	_, err = f.Write([]byte("second"))
	require.NoError(t, err)
	_, err = store.Put(t.Context(), path, []byte("first"), store.Condition{Absent: true})
	require.NoError(t, err)
	require.ErrorIs(t, f.Commit(t.Context(), false), os.ErrExist)
	got, _, err := store.Get(t.Context(), path, 100)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	require.NoError(t, noUploads(t.Context(), path))
	_, err = store.Put(t.Context(), path, []byte("third"), store.Condition{Tag: `"another"`})
	require.ErrorIs(t, err, os.ErrExist)
	f, err = Stage(t.Context(), cloud.Lake+"empty.csv", false, lease)
	require.NoError(t, err)
	require.NoError(t, f.Commit(t.Context(), false))
	got, _, err = store.Get(t.Context(), cloud.Lake+"empty.csv", 100)
	require.NoError(t, err)
	require.Empty(t, got)
	_, tag, err := store.Get(t.Context(), path, 100)
	require.NoError(t, err)
	_, err = store.Put(t.Context(), path, []byte("fourth"), store.Condition{Tag: tag})
	require.NoError(t, err)
	_, err = store.Put(t.Context(), path, []byte("fifth"), store.Condition{Tag: tag})
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, noUploads(t.Context(), cloud.Lake))
	ctx, cancel := context.WithCancel(t.Context())
	f, err = Stage(ctx, path, true, lease)
	require.NoError(t, err)
	cancel()
	_, err = f.Write(make([]byte, 1000))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, f.Abort())
	require.NoError(t, lease.Close())
}
