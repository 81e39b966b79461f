"""What allocators held over time and at the peak."""
