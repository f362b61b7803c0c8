// Package ranks connects the processes of a run that a launcher has started together, such as torchrun, srun or an MPI
// operator. Each process is a rank. All run the same plan, each on its device and its share of the tables, and the
// exchanges of the plan move rows between them (Thostrup et al., SIGMOD 2023, §3).
//
// Ranks meet at the address of rank 0, and open a connection between each two of them. Messages go over these
// connections: beginnings and ends of exchanges, positions in an order, room for more rows, and errors. Rows go over
// them too, through host memory (TCP), or from device memory to device memory by a gpu.Communicator (NCCL), in rounds:
// see rounds.go.
//
// # Trust
//
// All ranks run the same program for the same user, in a network that they trust: there is no encryption. A process
// that does not know the name of the run, which rank 0 draws, is turned away. What arrives is checked for sizes.
package ranks
