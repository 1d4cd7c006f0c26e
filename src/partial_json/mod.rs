//! Tool arguments while they stream, and the strict parse at their end.
