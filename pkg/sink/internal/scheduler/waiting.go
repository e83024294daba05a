package scheduler

import "container/heap"

// waiting is a heap of jobs by the time at which to check them.
type waiting []*Job

var _ heap.Interface = &waiting{}

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, k int) bool { return w[i].wake.Before(w[k].wake) }
func (w waiting) Swap(i, k int) {
	w[i], w[k] = w[k], w[i]
	w[i].index, w[k].index = i, k
}

// Push implements heap.Interface.
func (w *waiting) Push(x any) {
	j := x.(*Job)
	j.index = len(*w)
	*w = append(*w, j)
}

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	last := len(*w) - 1
	j := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return j
}
