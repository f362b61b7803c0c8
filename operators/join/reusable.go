package join

// Reusable implements operators.Reusable: the whole build side is in memory, and the join does not remember which of
// its rows had a match.
func (o *outOfCore) Reusable() bool {
	return !o.started.Load() && o.built != nil && !o.Kind.KeepsBuild() && !o.Kind.OfBuild()
}
