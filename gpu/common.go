package gpu

// CommonType returns the type in which values of two types are compared, or become one column. ok
// is false if there is none. FLOAT with an integer or a decimal is FLOAT, as in DuckDB, although it
// has fewer digits.
func CommonType(s, t Type) (Type, bool) {
	switch {
	case s == t:
		return s, true
	case s.IsEnum() && (t.IsEnum() || t.Kind == String), s.Kind == String && t.IsEnum():
		return Of(String), true
	case s.Kind == Bool && t.IsInteger():
		return t, true
	case t.Kind == Bool && s.IsInteger():
		return s, true
	case s.IsNumeric() && t.IsNumeric():
		return commonNumber(s, t), true
	case s.Kind == Time && t.Kind == Time:
		s.Unit = max(s.Unit, t.Unit)
		return s, true
	case s.Kind == Date && t.Kind == Timestamp:
		t.Unit = max(t.Unit, Microsecond)
		return t, true
	case s.Kind == Timestamp && t.Kind == Date:
		return CommonType(t, s)
	case s.Kind == Timestamp && t.Kind == Timestamp:
		s.Unit = max(s.Unit, t.Unit)
		s.UTC = s.UTC || t.UTC
		return s, true
	case s.IsNested() && s.Kind == t.Kind:
		return commonNested(s, t)
	}
	return Type{}, false
}

// commonNested is CommonType of nested types of one kind: that of what is inside. Structs must have the same names.
func commonNested(s, t Type) (Type, bool) {
	x, y := s.Children(), t.Children()
	if len(x) != len(y) {
		return Type{}, false
	}
	fields := make([]Field, len(x))
	for i := range x {
		inner, ok := CommonType(x[i].Type, y[i].Type)
		if !ok || x[i].Name != y[i].Name {
			return Type{}, false
		}
		fields[i] = Field{Name: x[i].Name, Type: inner}
	}
	return nested(s.Kind, fields...), true
}

func commonNumber(s, t Type) Type {
	switch {
	case s.IsFloat() || t.IsFloat():
		return CommonFloat(s, t)
	case s.Kind == Decimal || t.Kind == Decimal:
		return commonDecimal(s.Digits(), t.Digits())
	}
	return CommonInteger(s, t)
}

func commonDecimal(s, t Type) Type {
	scale := max(s.Scale, t.Scale)
	whole := max(s.Precision-s.Scale, t.Precision-t.Scale)
	return DecimalOf(min(int(whole)+int(scale), MaxPrecision), int(scale))
}

// Digits returns the decimal type that holds every value of an integer type, for HUGEINT the
// largest decimal type. It returns other types unchanged.
func (t Type) Digits() Type {
	switch t.Kind {
	case Int8, Uint8:
		return DecimalOf(3, 0)
	case Int16, Uint16:
		return DecimalOf(5, 0)
	case Int32, Uint32:
		return DecimalOf(10, 0)
	case Int64:
		return DecimalOf(19, 0)
	case Uint64:
		return DecimalOf(20, 0)
	case HugeInt:
		return DecimalOf(MaxPrecision, 0)
	}
	return t
}

// CommonInteger returns the smallest integer type that holds the values of two integer
// types, or HUGEINT if there is none.
func CommonInteger(s, t Type) Type {
	if s.IsSigned() == t.IsSigned() {
		if s.Width() >= t.Width() {
			return s
		}
		return t
	}
	if s.IsUnsigned() {
		s, t = t, s
	}
	switch max(s.Width(), 2*t.Width()) {
	case 2:
		return Of(Int16)
	case 4:
		return Of(Int32)
	case 8:
		return Of(Int64)
	}
	return Of(HugeInt)
}

// CommonFloat returns the result type of arithmetic with a float: FLOAT unless one side
// is a DOUBLE.
func CommonFloat(s, t Type) Type {
	if s.Kind == Float64 || t.Kind == Float64 {
		return Of(Float64)
	}
	return Of(Float32)
}
