// Package sqldriver is the driver of gstream for database/sql.
//
//	db, err := sql.Open("gstream", "dir=/data&memory_limit=4GiB&device=auto")
//	rows, err := db.QueryContext(ctx, "SELECT a, sum(b) FROM 'x/*.parquet' WHERE day = $day GROUP BY a",
//		sql.Named("day", "2026-01-31"))
//	result, err := db.ExecContext(ctx, "COPY (FROM 'x/*.parquet' ORDER BY id) TO 'out/' (COMPRESSION zstd)")
//
// The data source name has settings as in the query of a URL: dir, the folder to which paths are relative, and the
// settings of SET, such as threads, memory_limit, temp_directory and device. It may be empty.
//
// Rows stream: a query runs while they are read, and keeps at most a few strides of them. It ends when its context
// ends or its rows are closed. Views, temporary tables and settings of one statement last for the later ones of the
// same *sql.DB, on all its connections. A text may have several statements. The rows of Query are those of the last
// one, and
// EXPLAIN has the plan in one row; Exec returns the number of rows that COPY has written. There are no transactions.
//
// Values have these types in Go; a column that may be null has the type sql.Null of it:
//
//	BOOLEAN                  bool
//	TINYINT … BIGINT         int64
//	UTINYINT … UBIGINT       uint64
//	FLOAT, DOUBLE            float32, float64
//	DECIMAL                  string, with all digits
//	DATE, TIMESTAMP          time.Time in UTC; an infinite one is the string infinity or -infinity
//	TIME, VARCHAR, UUID      string
//	BLOB                     []byte
package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"

	"github.com/gstream/gstream/pipeline"
)

func init() { sql.Register("gstream", Driver{}) }

// Driver implements driver.Driver and driver.DriverContext.
type Driver struct{}

// Open implements driver.Driver.
func (d Driver) Open(name string) (driver.Conn, error) {
	c, err := d.OpenConnector(name)
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

// OpenConnector implements driver.DriverContext.
func (d Driver) OpenConnector(name string) (driver.Connector, error) {
	values, err := url.ParseQuery(name)
	if err != nil {
		return nil, fmt.Errorf("the data source name %q: %w; it has settings such as threads=4&memory_limit=4GiB", name,
			err)
	}
	s := &pipeline.Session{}
	for key, list := range values {
		for _, v := range list {
			if key == "dir" {
				s.Dir = v
			} else if err := s.Set(key, v); err != nil {
				return nil, fmt.Errorf("the data source name %q: %w", name, err)
			}
		}
	}
	return &connector{driver: d, session: s}, nil
}

// connector has the session that its connections share.
type connector struct {
	driver  Driver
	mu      sync.Mutex
	session *pipeline.Session
}

func (c *connector) Connect(context.Context) (driver.Conn, error) { return &conn{c}, nil }
func (c *connector) Driver() driver.Driver                        { return c.driver }

// Close closes a GPU that queries have left open. sql.DB.Close calls it.
func (c *connector) Close() error { return pipeline.CloseIdle() }

// conn is a connection. It has no state of its own.
type conn struct{ *connector }

var errNoTransactions = errors.New("gstream has no transactions; a COPY appears as a whole or not at all")

func (c *conn) Begin() (driver.Tx, error) { return nil, errNoTransactions }
func (c *conn) Close() error              { return nil }

func (c *conn) Prepare(query string) (driver.Stmt, error) { return &stmt{c, query}, nil }

// CheckNamedValue implements driver.NamedValueChecker: it accepts what Params accepts.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	switch v.Value.(type) {
	case json.Number, uint64, uint, float32:
		return nil
	}
	return driver.ErrSkip
}

// stmt is a text. It is parsed again when it runs, as its parameters are values.
type stmt struct {
	*conn
	query string
}

func (s *stmt) Close() error { return nil }

// NumInput implements driver.Stmt. It is unknown for parameters with names.
func (s *stmt) NumInput() int {
	names, err := pipeline.Parameters(s.query)
	most := 0
	for _, name := range names {
		n, wrong := strconv.Atoi(name)
		if err != nil || wrong != nil {
			return -1
		}
		most = max(most, n)
	}
	return most
}

var errContext = errors.New("gstream: database/sql calls the methods with a context")

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errContext }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errContext }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// ExecContext implements driver.ExecerContext. The rows of a query are read and dropped.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	list, err := c.parse(query, args)
	if err != nil {
		return nil, err
	}
	var written int64
	for _, st := range list {
		n, err := c.exec(ctx, st)
		if err != nil {
			return nil, err
		}
		written += n
	}
	return result(written), nil
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	list, err := c.parse(query, args)
	if err != nil {
		return nil, err
	}
	for i, st := range list {
		if i < len(list)-1 || st.Kind != pipeline.QueryStatement && st.Kind != pipeline.ExplainStatement {
			if _, err := c.exec(ctx, st); err != nil {
				return nil, err
			}
			continue
		}
		if st.Kind == pipeline.ExplainStatement {
			return c.explain(ctx, st)
		}
		target := newTarget()
		p, err := c.plan(ctx, st, target)
		if err != nil {
			return nil, err
		}
		return c.start(ctx, p, target), nil
	}
	return &explained{}, nil
}

func (c *conn) parse(query string, args []driver.NamedValue) ([]*pipeline.Statement, error) {
	params := pipeline.Params{}
	for _, a := range args {
		name := a.Name
		if name == "" {
			name = strconv.Itoa(a.Ordinal)
		}
		params[name] = a.Value
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Parse("", query, params)
}

// options returns the options of a run.
func (c *conn) options() pipeline.RunOptions {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Options(pipeline.RunOptions{})
}

// plan plans a statement. A nil target is the output of COPY.
func (c *conn) plan(ctx context.Context, st *pipeline.Statement, target pipeline.Target) (*pipeline.Plan, error) {
	c.mu.Lock()
	job, err := st.Job()
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return pipeline.NewPlanWith(ctx, job, pipeline.PlanOptions{Target: target})
}

// exec runs a statement, and returns the number of rows that it has written.
func (c *conn) exec(ctx context.Context, st *pipeline.Statement) (written int64, err error) {
	var target pipeline.Target
	switch st.Kind {
	case pipeline.DefineStatement, pipeline.SetStatement:
		c.mu.Lock()
		defer c.mu.Unlock()
		return 0, st.Apply(ctx)
	case pipeline.ExplainStatement:
		_, err := c.explain(ctx, st)
		return 0, err
	case pipeline.QueryStatement:
		target = dropped{}
	}
	p, err := c.plan(ctx, st, target)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	report, err := p.Run(ctx, c.options())
	if err != nil {
		return 0, err
	}
	return report.Output.Rows, nil
}

// explain returns the plan of a statement, in one row.
func (c *conn) explain(ctx context.Context, st *pipeline.Statement) (_ driver.Rows, err error) {
	var target pipeline.Target
	if !st.Writes() {
		target = dropped{}
	}
	p, err := c.plan(ctx, st, target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	opt := c.options()
	choice, err := p.ChooseDevice(opt)
	if err != nil {
		return nil, err
	}
	e := p.ExplainChoice(choice)
	e.Choice = choice
	if st.Analyze {
		opt.Discard = true
		report, err := p.Run(ctx, opt)
		if err != nil {
			return nil, err
		}
		e.Analyze(report)
	}
	return &explained{columns: []string{"plan"}, rows: []string{e.String()}}, nil
}

// result is the number of rows that a statement has written.
type result int64

func (r result) RowsAffected() (int64, error) { return int64(r), nil }
func (r result) LastInsertId() (int64, error) {
	return 0, errors.New("gstream has no IDs of inserted rows")
}

// explained has rows of one text.
type explained struct{ columns, rows []string }

func (e *explained) Columns() []string { return e.columns }
func (e *explained) Close() error      { return nil }
func (e *explained) Next(dest []driver.Value) error {
	if len(e.rows) == 0 {
		return io.EOF
	}
	dest[0], e.rows = e.rows[0], e.rows[1:]
	return nil
}
