//! What the trail promises beyond recovery, each broken on purpose.
