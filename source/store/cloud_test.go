package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// TestObjectsOfEachStoreAreListedAndRead writes objects, lists them by pages, and reads them through faults.
func TestObjectsOfEachStoreAreListedAndRead(t *testing.T) {
	content := make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	for _, cloud := range storetest.Clouds[1:] { // those of S3 are read in other tests
		storetest.Quick(t)
		endpoint := cloud.Start(t)
		cloud.Use(t, endpoint)
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprintf("%sa&/é %d+=.csv", cloud.Lake, i))
			_, err := store.Put(t.Context(), want[i], content[i:], store.Condition{Absent: true})
			require.NoError(t, err)
		}
		_, err := store.Put(t.Context(), cloud.Lake+"b", nil, store.Condition{})
		require.NoError(t, err)
		versions := map[string]store.Version{}
		require.NoError(t, store.List(t.Context(), cloud.Lake+"a&/", func(path string, v store.Version) error {
			versions[path] = v
			return nil
		}))
		require.Len(t, versions, len(want))
		cloud.Use(t, storetest.Proxy(t, endpoint, storetest.Random(2, 0.4, storetest.Cut, storetest.Refuse,
			storetest.Lie, storetest.Drop, storetest.Unranged)))
		for i, path := range want {
			v := versions[path]
			f, err := store.Open(t.Context(), path, &v)
			require.NoError(t, err)
			got := make([]byte, v.Size)
			_, err = f.ReadAt(t.Context(), got, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(content[i:], got))
		}
		cloud.Use(t, endpoint)
		v := versions[want[0]]
		_, err = store.Put(t.Context(), want[0], slices.Repeat([]byte{1}, len(content)), store.Condition{})
		require.NoError(t, err)
		f, err := store.Open(t.Context(), want[0], &v)
		require.NoError(t, err)
		_, err = f.ReadAt(t.Context(), make([]byte, 9), 0)
		require.ErrorIs(t, err, source.ErrChanged)
		require.NoError(t, store.Delete(t.Context(), want[0]))
		require.NoError(t, store.Delete(t.Context(), want[0]))
		_, err = store.Stat(t.Context(), want[0])
		require.ErrorIs(t, err, fs.ErrNotExist)
		other := cloud.Lake[:len(cloud.Lake)-1] + "2/"
		require.ErrorContains(t, store.Uploads(t.Context(), other, nil), "there is no such ")
	}
}

// TestAKilledUploadOfGoogleIsFoundAndEnded has parts that were joined, of which no object of the path was made.
func TestAKilledUploadOfGoogleIsFoundAndEnded(t *testing.T) {
	storetest.Quick(t)
	storetest.UseGoogle(t, storetest.Google(t))
	const lake = "gs://" + storetest.Bucket + "/"
	path := lake + "x.csv"
	joined := path + ".0123456789abcdef0123456789abcdef.gstream-upload"
	_, err := store.Put(t.Context(), joined, []byte("parts"), store.Condition{})
	require.NoError(t, err)
	require.NoError(t, store.List(t.Context(), lake, func(string, store.Version) error {
		return errors.New("it is not listed")
	}))
	u, err := store.Begin(t.Context(), path, nil)
	require.NoError(t, err)
	var found []store.Pending
	require.NoError(t, store.Uploads(t.Context(), lake, func(p store.Pending) error {
		require.Equal(t, path, p.Path)
		require.WithinDuration(t, time.Now(), p.Began, time.Hour)
		found = append(found, p)
		return nil
	}))
	require.Len(t, found, 2)
	require.NoError(t, u.Abort(t.Context()))
	require.NoError(t, found[1].Abort(t.Context()))
	require.NoError(t, store.Uploads(t.Context(), lake, func(store.Pending) error { return errors.New("it is left") }))
	_, err = store.Stat(t.Context(), joined)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
