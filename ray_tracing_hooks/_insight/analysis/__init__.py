"""What a run says: where its time went, who waited for whom, and what to do about it. Writes nothing."""
