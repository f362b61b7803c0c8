package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
)

// web is a web server that sends ranges.
type web struct{}

// isCertificate reports whether a connection failed because of the certificate of the server.
func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host)
}

var webClient = &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return final(syscall.EIO, "the server redirects more than %d times", maxRedirects)
	case req.URL.Scheme != "https" && via[0].URL.Scheme == "https":
		return final(syscall.EIO, "the server redirects to an address without https")
	}
	req.Header.Del("Referer") // it would have the query
	return nil
}}

func (web) prepare(ctx context.Context, method, path string, _ url.Values) (*http.Request, error) {
	u, err := parseHTTP(path)
	if err != nil {
		return nil, final(syscall.EIO, "%v", err)
	}
	u.Fragment, u.RawFragment = "", ""
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, final(syscall.EIO, "not an address as in https://host/file.parquet")
	}
	return req, nil
}

func (web) send(req *http.Request) (*http.Response, error) { return webClient.Do(req) }

func (web) advise(_ *http.Request, status int, _ string) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "it asks for a right to read the file; check the address, and whether a signed one has expired"
	case http.StatusNotFound, http.StatusGone:
		return "check the address"
	}
	return ""
}

func (w web) stat(ctx context.Context, path string) (Version, error) { return stat(ctx, w, path) }

func (w web) open(ctx context.Context, path string, v *Version) (File, error) {
	return open(ctx, w, path, v)
}

func (web) list(_ context.Context, prefix string, _ func(string, Version) error) error {
	return fmt.Errorf("%s: a web server has no list of its files; name each file", Display(prefix))
}
