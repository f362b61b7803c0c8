package join

// Algorithms returns the names of the algorithms that Spec.Algorithm may force.
func Algorithms() []string {
	return []string{"npj", "phj-ur", "phj-tr", "smj-ur", "smj-tr", "bucket", "rhj", "large-s"}
}
