"""Models, endpoints, online prediction and batch prediction."""
