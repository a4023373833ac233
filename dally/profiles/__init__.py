"""What distance costs each model: the profile files, and the prediction of iteration times from them."""
