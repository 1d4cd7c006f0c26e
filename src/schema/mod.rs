//! Validation of tool arguments.
