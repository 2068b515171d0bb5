"""Ground costs between source and target, block by block, and sorted neighbour lists."""
