// search: binary search among ascending columns.

// Position of `column` in columns[low .. high], or -1.
template <class At, class Column>
__device__ __forceinline__ At find_column(const Column* columns, At low, At high, decltype(Column() + 0) column) {
    const At end = high;
    while (low < high) {
        const At middle = (low + high) / 2;
        if (columns[middle] < column) low = middle + 1; else high = middle;
    }
    return low < end && columns[low] == column ? low : (At)-1;
}
