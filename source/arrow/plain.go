package arrow

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/encoded"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// plainArray returns an array with the same values in a type that columnOfArrow accepts. The caller
// releases it. It copies the values of less common types: half floats become floats, days in
// milliseconds become days, decimals of 256 bits become decimals of 128 bits, durations and other
// intervals become months, days and nanoseconds, and a run-end encoded array becomes a dictionary
// array.
func plainArray(a arrow.Array) (arrow.Array, error) {
	switch a := a.(type) {
	case array.ExtensionArray:
		return plainArray(a.Storage())
	case *array.MonthInterval, *array.DayTimeInterval, *array.Duration:
		return plainIntervals(a)
	case *array.Null:
		return array.MakeArrayOfNull(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32, a.Len()), nil
	case *array.Float16:
		b := array.NewFloat32Builder(memory.DefaultAllocator)
		defer b.Release()
		return built(b, a, func(i int) error { b.Append(a.Value(i).Float32()); return nil })
	case *array.Date64:
		b := array.NewDate32Builder(memory.DefaultAllocator)
		defer b.Release()
		perDay := arrow.Date64(gpu.Millisecond.PerDay())
		return built(b, a, func(i int) error {
			v := a.Value(i)
			if v%perDay != 0 || v/perDay != arrow.Date64(arrow.Date32(v/perDay)) {
				return fmt.Errorf("row %d: %d milliseconds are no day: %w", i, v, source.ErrData)
			}
			b.Append(arrow.Date32(v / perDay))
			return nil
		})
	case *array.Decimal256:
		t := a.DataType().(*arrow.Decimal256Type)
		b := array.NewDecimal128Builder(memory.DefaultAllocator,
			&arrow.Decimal128Type{Precision: t.Precision, Scale: t.Scale})
		defer b.Release()
		return built(b, a, func(i int) error {
			v := a.Value(i).BigInt()
			if w, ok := gpu.Int128FromBig(v); !ok || !w.FitsPrecision(int(t.Precision)) {
				return fmt.Errorf("row %d: %v has more than %d digits: %w", i, v, t.Precision, source.ErrData)
			}
			b.Append(decimal128.FromBigInt(v))
			return nil
		})
	case *array.RunEndEncoded:
		values, err := plainArray(a.Values())
		if err != nil {
			return nil, err
		}
		defer values.Release()
		b := array.NewInt32Builder(memory.DefaultAllocator)
		defer b.Release()
		b.Reserve(a.Len())
		for i := range a.Len() {
			b.UnsafeAppend(int32(encoded.FindPhysicalIndex(a.Data(), i+a.Offset())))
		}
		codes := b.NewArray()
		defer codes.Release()
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32,
			ValueType: values.DataType()}, codes, values), nil
	case *array.Dictionary:
		values, err := plainArray(a.Dictionary())
		if err != nil {
			return nil, fmt.Errorf("dictionary: %w", err)
		}
		defer values.Release()
		if arrow.TypeEqual(values.DataType(), a.Dictionary().DataType()) {
			break
		}
		t := a.DataType().(*arrow.DictionaryType)
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: t.IndexType, ValueType: values.DataType()},
			a.Indices(), values), nil
	}
	a.Retain()
	return a, nil
}

// built returns an array with as many rows as from, and the same nulls. appendRow appends a row
// that is not null.
func built(b array.Builder, from arrow.Array, appendRow func(i int) error) (arrow.Array, error) {
	b.Reserve(from.Len())
	for i := range from.Len() {
		if from.IsNull(i) {
			b.AppendNull()
		} else if err := appendRow(i); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}
