// What the simulated runtime tells the driver below it.
#ifndef NCCLSCOPE_SIM_DRIVER_H
#define NCCLSCOPE_SIM_DRIVER_H

// The device's primary context is current in this thread from now on, made where there is none.
void driver_use_device(int device);
// cudaDeviceReset: the device's primary context is destroyed.
void driver_reset_device(int device);

#endif
