package syntax

import (
	"strings"

	"github.com/gstream/gstream/gpu"
)

// The statements of an SQL text, before names are resolved.
type (
	// Statement is a statement of an SQL text: a *Query, *Copy, *CreateView, *CreateMacro, *CreateType, *Explain,
	// *Describe, *Summarize or *Set. String returns SQL that parses to the same tree.
	Statement interface {
		Pos() int
		String() string
	}
	// Query is [WITH …] body [ORDER BY …] [LIMIT …] [OFFSET …].
	Query struct {
		Base
		Recursive bool
		With      []CTE
		Body      QueryBody
		Order     []OrderKey
		OrderAll  *OrderKey // ORDER BY ALL, whose X is nil; nil without
		Limit     Node      // nil without
		Percent   bool      // Limit is a share of the rows, in percent
		Offset    Node      // nil without
	}
	// CTE is a common table expression: name [(columns)] AS [[NOT] MATERIALIZED] (query).
	CTE struct {
		Base
		Name         string
		Columns      []string
		Materialized *bool // nil without
		Query        *Query
	}
	// QueryBody is a *Select, a *SetOperation, *RowValues, a *Query in parentheses, a *Describe, or a *Pivot or
	// *Unpivot of which it has all columns.
	QueryBody interface {
		Pos() int
		body()
		write(b *strings.Builder)
	}
	// SetOperation is Left UNION|INTERSECT|EXCEPT [ALL] [BY NAME] Right.
	SetOperation struct {
		Base
		Op          string // in upper case
		All, ByName bool
		Left, Right QueryBody
	}
	// RowValues is VALUES (…), ….
	RowValues struct {
		Base
		Rows [][]Node
	}
	// Select is SELECT … FROM …, or FROM … [SELECT …].
	Select struct {
		Base
		Distinct   bool
		DistinctOn []Node // of DISTINCT ON, which is Distinct, too
		Items      []SelectItem
		From       []TableRef // that commas separate
		Where      Node
		GroupAll   bool // GROUP BY ALL
		Group      []GroupItem
		Having     Node
		Windows    []NamedWindow
		Qualify    Node
		Sample     *Sample
	}
	// SelectItem is an expression or a *StarExpr, with its alias or "".
	SelectItem struct {
		X     Node
		Alias string
	}
	// GroupItem is an element of GROUP BY: one expression, or grouping sets.
	GroupItem struct {
		Base
		X Node // nil for sets
		// Kind is ROLLUP, CUBE or GROUPING SETS. An element of ROLLUP and CUBE is a list of expressions in Lists; one
		// of GROUPING SETS is a GroupItem in Sets, and a list in parentheses is one of Kind "" and Lists of one list.
		Kind  string
		Lists [][]Node
		Sets  []GroupItem
	}
	// NamedWindow is name AS (window) in the clause WINDOW.
	NamedWindow struct {
		Base
		Name   string
		Window *Window
	}
	// Sample is USING SAMPLE and TABLESAMPLE.
	Sample struct {
		Base
		Size    Node
		Percent bool
		Method  string // "", bernoulli, reservoir or system
		Seed    Node   // nil without
	}
	// StarExpr is [table.]* with its modifiers, or COLUMNS(…) of a pattern.
	StarExpr struct {
		Base
		Star
		// Pattern is the argument of COLUMNS, nil for * and COLUMNS(*). With Like it is the pattern of * LIKE, ILIKE or
		// SIMILAR TO, or with Not of * NOT LIKE, of the names of columns.
		Pattern Node
		Columns bool   // COLUMNS(…)
		Like    string // in upper case; "" without
		Not     bool
	}
	// Subquery is a query in an expression. Kind is "" for a scalar subquery, EXISTS, or a comparison: X Op ANY or X
	// Op ALL. IN is = ANY, and NOT IN is <> ALL.
	Subquery struct {
		Base
		Kind  string // "", EXISTS, ANY or ALL
		Not   bool   // of EXISTS
		X     Node   // of ANY and ALL; a *Row compares several columns
		Op    string // of ANY and ALL
		Query *Query
	}
	// Row is (a, b, …) or ROW(a, …), and the list [a, …] as an argument of a table function and an option of COPY.
	Row struct {
		Base
		Items []Node
		List  bool
	}
	// Struct is {'a': x, …} or {a: x, …} as an argument of a table function that has a name.
	Struct struct {
		Base
		Names  []string
		Values []Node
	}
	// Parameter is $1, ? or $name. Name is the number or the name.
	Parameter struct {
		Base
		Name string
	}
)

// The tables of FROM.
type (
	// TableRef is a *TableName, *TableFunction, *TableQuery, *JoinedTable, *Pivot or *Unpivot.
	TableRef interface {
		Pos() int
		table()
		write(b *strings.Builder)
	}
	// Alias is [AS] Name [(Columns)], and the sample of a table.
	Alias struct {
		Name    string
		Columns []string
		Sample  *Sample
	}
	// TableName is a table by its name, or by the path of a file in quotes.
	TableName struct {
		Base
		Parts []string
		Path  bool // written as a string 'file.parquet'
		Alias
		hidden string // the part of the text that a hidden value replaces, or ""
	}
	// TableFunction is a call of a table function, such as read_parquet('x', hive_partitioning = true).
	TableFunction struct {
		Base
		Call       *Call
		Named      []NamedArgument
		Lateral    bool
		Ordinality bool
		Alias
	}
	// NamedArgument is name = value, name := value or name => value.
	NamedArgument struct {
		Base
		Name  string
		Value Node
	}
	// TableQuery is a query in parentheses, also (VALUES …).
	TableQuery struct {
		Base
		Query   *Query
		Lateral bool
		Alias
	}
	// JoinedTable is Left [kind] JOIN Right [ON … | USING (…)]. Kind is INNER, LEFT, RIGHT, FULL, CROSS, SEMI, ANTI or
	// POSITIONAL.
	JoinedTable struct {
		Base
		Kind          string
		Natural, AsOf bool
		Left, Right   TableRef
		On            Node
		Using         []string
		Alias         // of the join in parentheses
	}
	// Pivot is table PIVOT (aggregates FOR column IN (values) … GROUP BY …), and the statement PIVOT table ON … USING …
	// GROUP BY …, which may be without aggregates, columns and values.
	Pivot struct {
		Base
		Table      TableRef
		Aggregates []SelectItem
		On         []PivotColumn
		Group      []Node
		Alias
	}
	// PivotColumn is a column whose values become columns: the values of In, those of Query, or all.
	PivotColumn struct {
		X     Node
		In    []SelectItem
		Query *Query
	}
	// Unpivot is table UNPIVOT (value FOR name IN (columns)), and the statement UNPIVOT table ON columns INTO NAME …
	// VALUE …, of which the names are name and value without INTO.
	Unpivot struct {
		Base
		Table        TableRef
		IncludeNulls bool
		Values       []string
		Name         string
		Columns      []UnpivotColumns
		Alias
	}
	// UnpivotColumns are the columns of one row, and the name of the row.
	UnpivotColumns struct {
		Xs    []Node // columns, or one *StarExpr
		Alias string
	}
)

// The other statements.
type (
	// Copy is COPY query|table TO 'path' (options).
	Copy struct {
		Base
		Query   *Query
		To      string
		Options []NamedArgument // a name without a value has a nil Value
		hidden  string          // as in TableName, of To
	}
	// CreateView is CREATE [OR REPLACE] [TEMP] VIEW|TABLE name [(columns)] AS query.
	CreateView struct {
		Base
		Replace, Temp, Table, IfNotExists bool
		Name                              string
		Columns                           []string
		Query                             *Query
	}
	// CreateMacro is CREATE [OR REPLACE] [TEMP] MACRO|FUNCTION name(parameters) AS expression|TABLE query.
	CreateMacro struct {
		Base
		Replace, Temp, IfNotExists bool
		Name                       string
		Parameters                 []string        // all
		Defaults                   []NamedArgument // of the last parameters
		X                          Node            // nil for a table macro
		Query                      *Query          // of a table macro
	}
	// CreateType is CREATE [OR REPLACE] [TEMP] TYPE name AS type. The statements behind it have the type in place of
	// its name.
	CreateType struct {
		Base
		Replace, Temp, IfNotExists bool
		Name                       string
		Type                       gpu.Type
	}
	// Explain is EXPLAIN [ANALYZE] statement.
	Explain struct {
		Base
		Analyze   bool
		Statement Statement
	}
	// Describe is DESCRIBE query|table. Summarize is SUMMARIZE query|table.
	Describe struct {
		Base
		Summarize bool
		Query     *Query
	}
	// Set is SET name = value.
	Set struct {
		Base
		Name  string
		Value Node
	}
)

func (*Select) body()       {}
func (*SetOperation) body() {}
func (*RowValues) body()    {}
func (*Query) body()        {}
func (*Pivot) body()        {}
func (*Unpivot) body()      {}
func (*Describe) body()     {}

func (*TableName) table()     {}
func (*TableFunction) table() {}
func (*TableQuery) table()    {}
func (*JoinedTable) table()   {}
func (*Pivot) table()         {}
func (*Unpivot) table()       {}
