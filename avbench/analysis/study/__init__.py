"""The estimator laboratory: what labelled drafts say about features, fits and the confidence head."""
